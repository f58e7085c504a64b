package toolhive

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// issuer is one of tokens, with keys of its own.
type issuer struct {
	testing.TB
	url string
	key *rsa.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{TB: t, key: key}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	answer := func(path string, value any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value) // who asked has gone
		})
	}
	answer("/.well-known/openid-configuration", map[string]any{
		"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/auth", "token_endpoint": i.url + "/token",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
	})
	answer("/keys", map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
	}}})
	return i
}

// token is one that says it is of an issuer, and is signed by this one.
func (i *issuer) token(of, audience string) string {
	i.Helper()
	part := func(value map[string]any) string {
		text, err := json.Marshal(value)
		if err != nil {
			i.Fatal(err)
		}
		return encode(text)
	}
	now := time.Now()
	signed := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": "1"}) + "." + part(map[string]any{
		"iss": of, "aud": audience, "sub": "alice", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		i.Fatal(err)
	}
	return signed + "." + encode(signature)
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
