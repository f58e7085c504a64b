// Package pki makes the keys and certificates of one test cluster. It knows
// certificates, not which server uses which; nothing it makes is meant to
// outlive the cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime is longer than any test cluster lives, and short enough that a
// forgotten key is worth nothing soon.
const lifetime = 30 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	// Pair is the authority's own certificate and key.
	Pair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both PEM encoded.
type Pair struct {
	Cert, Key []byte
}

// Subject says whom a certificate is for.
type Subject struct {
	// User is the common name, which Kubernetes takes for the user name.
	User string
	// Groups are the organizations, which Kubernetes takes for the groups.
	Groups []string
	// Hosts are DNS names or IP addresses; a certificate with any of them is
	// good for serving, one without for being a client.
	Hosts []string
}

// NewAuthority makes a self-signed authority; each call makes another one.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of authority %q: %w", name, err)
	}
	template, err := newTemplate(Subject{User: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %q: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back authority %q: %w", name, err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	return &Authority{Pair: pair, certificate: certificate, key: key}, nil
}

// Issue makes a key and signs a certificate for it.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %q: %w", subject.User, err)
	}
	template, err := newTemplate(subject)
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %q: %w", subject.User, err)
	}
	return encode(der, key)
}

// NewSigningKey makes a key pair for service account tokens: the private key
// signs them, the public key, in Cert, verifies them.
func NewSigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encode the service account key: %w", err)
	}
	pair, err := encode(nil, key)
	pair.Cert = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	return pair, err
}

// newTemplate is what every certificate has in common. It begins an hour ago,
// for clocks that are not quite right.
func newTemplate(subject Subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject.User, Organization: subject.Groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range subject.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	return template, nil
}

// encode writes key, and certificate if there is one, as PEM.
func encode(certificate []byte, key *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a private key: %w", err)
	}
	pair := Pair{Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
	if certificate != nil {
		pair.Cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	}
	return pair, nil
}
