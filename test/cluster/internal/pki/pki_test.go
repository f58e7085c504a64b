package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIssue(t *testing.T) {
	authority, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		subject   Subject
		authority *Authority
		usage     x509.ExtKeyUsage
		host      string
		trusted   bool
		why       string
	}{
		"client": {
			subject: Subject{User: "u", Groups: []string{"g"}}, authority: authority,
			usage: x509.ExtKeyUsageClientAuth, trusted: true, why: "a subject without hosts is a client",
		},
		"client does not serve": {
			subject: Subject{User: "u"}, authority: authority,
			usage: x509.ExtKeyUsageServerAuth, why: "a stolen client certificate must not pass for the API server",
		},
		"server by address": {
			subject: Subject{User: "s", Hosts: []string{"127.0.0.1", "localhost"}}, authority: authority,
			usage: x509.ExtKeyUsageServerAuth, host: "127.0.0.1", trusted: true, why: "kubeconfigs name the address",
		},
		"server by name": {
			subject: Subject{User: "s", Hosts: []string{"127.0.0.1", "localhost"}}, authority: authority,
			usage: x509.ExtKeyUsageServerAuth, host: "localhost", trusted: true, why: "people name localhost",
		},
		"other host": {
			subject: Subject{User: "s", Hosts: []string{"127.0.0.1"}}, authority: authority,
			usage: x509.ExtKeyUsageServerAuth, host: "example.com", why: "only the hosts that were asked for",
		},
		"other authority": {
			subject: Subject{User: "u"}, authority: stranger,
			usage: x509.ExtKeyUsageClientAuth, why: "clusters side by side must not trust each other, though their authorities have one name",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pair, err := tc.authority.Issue(tc.subject)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
				t.Fatalf("certificate and key do not belong together: %v", err)
			}
			block, _ := pem.Decode(pair.Cert)
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(authority.Cert)
			_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: tc.host, KeyUsages: []x509.ExtKeyUsage{tc.usage}})
			if trusted := err == nil; trusted != tc.trusted {
				t.Errorf("trusted is %v, want %v (%v): %s", trusted, tc.trusted, err, tc.why)
			}
			got := Subject{User: certificate.Subject.CommonName, Groups: certificate.Subject.Organization, Hosts: tc.subject.Hosts}
			if diff := cmp.Diff(tc.subject, got); diff != "" {
				t.Errorf("subject (-want +got):\n%s", diff)
			}
		})
	}
}
