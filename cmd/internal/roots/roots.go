// Package roots gives a program the certificates of the public authorities, for
// where there are none: our images hold a program and nothing else. Those of the
// system, or of SSL_CERT_FILE, are taken where there are any.
package roots

// Its init does it; the list is Mozilla's, and as old as the module in go.mod.
import _ "golang.org/x/crypto/x509roots/fallback"
