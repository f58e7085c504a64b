package fakeapiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const validFor = 7 * 24 * time.Hour

type certificates struct {
	caPEM   []byte
	serving tls.Certificate
}

// newCertificates makes a CA that exists in memory only and a serving certificate for one DNS name,
// the one that kube-apiserver's aggregator asks for: <service>.<namespace>.svc.
func newCertificates(dnsName string) (certificates, error) {
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "phasegate stand-in CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificates{}, fmt.Errorf("make CA key: %w", err)
	}
	ca, err := x509.CreateCertificate(rand.Reader, &template, &template, &caKey.PublicKey, caKey)
	if err != nil {
		return certificates{}, fmt.Errorf("make CA certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificates{}, fmt.Errorf("make serving key: %w", err)
	}
	leaf := x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: dnsName}, DNSNames: []string{dnsName},
		NotBefore: template.NotBefore, NotAfter: template.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, &leaf, &template, &key.PublicKey, caKey)
	if err != nil {
		return certificates{}, fmt.Errorf("make serving certificate: %w", err)
	}
	return certificates{
		caPEM:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}),
		serving: tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key},
	}, nil
}
