package fakeapiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const validFor = 7 * 24 * time.Hour

// Certificates are what a server behind a Service needs that kube-apiserver asks, as PEM.
type Certificates struct {
	// CA is for the APIService or the webhook configuration. Its key is forgotten.
	CA []byte
	// Cert and Key are for the server.
	Cert, Key []byte
}

// NewCertificates makes a CA and a serving certificate for the name that kube-apiserver asks a Service for:
// <service>.<namespace>.svc. Each call makes other ones.
func NewCertificates(service, namespace string) (Certificates, error) {
	now, dnsName := time.Now(), service+"."+namespace+".svc"
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "phasegate stand-in CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificates{}, fmt.Errorf("make CA key: %w", err)
	}
	ca, err := x509.CreateCertificate(rand.Reader, &template, &template, &caKey.PublicKey, caKey)
	if err != nil {
		return Certificates{}, fmt.Errorf("make CA certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificates{}, fmt.Errorf("make serving key: %w", err)
	}
	leaf := x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: dnsName}, DNSNames: []string{dnsName},
		NotBefore: template.NotBefore, NotAfter: template.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, &leaf, &template, &key.PublicKey, caKey)
	if err != nil {
		return Certificates{}, fmt.Errorf("make serving certificate: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Certificates{}, fmt.Errorf("encode serving key: %w", err)
	}
	return Certificates{
		CA:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}),
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
	}, nil
}
