package toolhive

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

// exchangeSecretEnv is where the program takes the secret of the exchange from.
const exchangeSecretEnv = "TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET" //nolint:gosec // the name of a variable

// TokenExchange is how the token of a client becomes one for the server.
type TokenExchange struct {
	TokenURL string `json:"token_url"`
	ClientID string `json:"client_id"`
	// ClientSecret is always empty: the program takes it from a variable.
	ClientSecret     string   `json:"client_secret"`
	Audience         string   `json:"audience"`
	Scopes           []string `json:"scopes,omitempty"`
	SubjectTokenType string   `json:"subject_token_type,omitempty"`
	HeaderStrategy   string   `json:"header_strategy,omitempty"`
	HeaderName       string   `json:"external_token_header_name,omitempty"`
}

// exchangeSpec is the spec of an MCPExternalAuthConfig that exchanges tokens.
type exchangeSpec struct {
	Type          string `json:"type"`
	TokenExchange *struct {
		TokenURL         string     `json:"tokenUrl"`
		ClientID         string     `json:"clientId"`
		ClientSecretRef  *SecretKey `json:"clientSecretRef"`
		Audience         string     `json:"audience"`
		Scopes           []string   `json:"scopes"`
		SubjectTokenType string     `json:"subjectTokenType"`
		HeaderName       string     `json:"externalTokenHeaderName"`
	} `json:"tokenExchange"`
}

// tokenTypes are the long names of the kinds of tokens.
var tokenTypes = map[string]string{ //nolint:gosec // names of kinds, not tokens
	"":             "",
	"access_token": "urn:ietf:params:oauth:token-type:access_token",
	"id_token":     "urn:ietf:params:oauth:token-type:id_token",
	"jwt":          "urn:ietf:params:oauth:token-type:jwt",
}

// tokenType is the long name of a kind of tokens, which may be given by either name.
func tokenType(name string) (long string, known bool) {
	if long, known = tokenTypes[name]; known {
		return long, true
	}
	for _, full := range tokenTypes {
		if full == name {
			return full, true
		}
	}
	return "", false
}

// typeOf is that of an MCPExternalAuthConfig.
func typeOf(config *unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(config.Object, "spec", "type")
	return kind
}

// addExternalAuth knows three types: tokens are exchanged, the proxy runs an authorization
// server, or nothing is done. All others are for proxies of servers elsewhere, or for several
// servers in one: this program does nothing of them. Two of them are a credential for the server, without which
// nobody is less protected: its value would have to be in the file, and the server runs without it.
func (p *Proxy) addExternalAuth(srv *v1beta1.MCPServer, named Objects) *InvalidError {
	const field = "externalAuthConfigRef"
	if srv.Spec.ExternalAuthConfigRef == nil {
		return nil
	}
	name := named.ExternalAuth.GetName()
	switch kind := typeOf(named.ExternalAuth); kind {
	case "unauthenticated", authServerType: // nothing is to be done, or addAuthServer does it
		return nil
	case "tokenExchange":
		return p.addTokenExchange(field, named.ExternalAuth)
	case "headerInjection", "bearerToken":
		p.Unsent = "MCPExternalAuthConfig " + name + " of type " + kind
		return nil
	default:
		return invalid(field, "MCPExternalAuthConfig %s is of type %q, which is not enforced here: only tokenExchange, embeddedAuthServer and unauthenticated are", name, kind)
	}
}

func (p *Proxy) addTokenExchange(field string, config *unstructured.Unstructured) *InvalidError {
	name := config.GetName()
	var spec exchangeSpec
	if err := decodeSpec(field, config, &spec); err != nil {
		return err
	}
	from := spec.TokenExchange
	if from == nil || from.TokenURL == "" || from.Audience == "" {
		return invalid(field, "MCPExternalAuthConfig %s lacks tokenExchange with tokenUrl and audience", name)
	}
	long, known := tokenType(from.SubjectTokenType)
	if !known {
		return invalid(field, "MCPExternalAuthConfig %s has subjectTokenType %q: write access_token, id_token or jwt", name, from.SubjectTokenType)
	}
	exchange := &TokenExchange{
		TokenURL: from.TokenURL, ClientID: from.ClientID, Audience: from.Audience, Scopes: from.Scopes,
		SubjectTokenType: long, HeaderStrategy: "replace", HeaderName: from.HeaderName,
	}
	if from.HeaderName != "" {
		exchange.HeaderStrategy = "custom"
	}
	if from.ClientSecretRef != nil {
		p.addEnv(exchangeSecretEnv, *from.ClientSecretRef)
	}
	p.Config.TokenExchange = exchange
	return nil
}
