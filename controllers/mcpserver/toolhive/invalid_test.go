package toolhive_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// TestInvalid is about what the file cannot say, or the program would not start with: it
// is never left out.
func TestInvalid(t *testing.T) {
	auth := func(spec string) toolhive.Objects {
		return toolhive.Objects{ExternalAuth: object("MCPExternalAuthConfig", "auth", spec)}
	}
	hooks := func(spec string) toolhive.Objects {
		return toolhive.Objects{Webhook: object("MCPWebhookConfig", "hooks", spec)}
	}
	refAuth := func(s *spec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} }
	refHooks := func(s *spec) { s.WebhookConfigRef = text(`{"name":"hooks"}`) }
	refTools := func(s *spec) { s.ToolConfigRef = &v1beta1.LocalRef{Name: "tools"} }
	refMap := func(s *spec) { s.AuthzConfig = text(`{"type":"configMap","configMap":{"name":"p"}}`) }
	policies := func(key, value string) toolhive.Objects {
		return toolhive.Objects{Policies: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Data: map[string]string{key: value}}}
	}
	const upstreamC = `"upstreamProviders":[{"name":"u","type":"oidc","oidcConfig":{"issuerUrl":"https://u","clientId":"c"}}]`
	refServer := func(audience string) func(*spec) {
		return func(s *spec) {
			s.OIDCConfigRef = text(`{"name":"idp","audience":"` + audience + `","resourceUrl":"https://me"}`)
			s.AuthServerRef = text(`{"kind":"MCPExternalAuthConfig","name":"as"}`)
		}
	}
	authServer := func(spec string) toolhive.Objects {
		return toolhive.Objects{OIDC: idp.OIDC, AuthServer: object("MCPExternalAuthConfig", "as", `{"type":"embeddedAuthServer","embeddedAuthServer":{`+spec+`}}`)}
	}
	type invalid struct {
		why    string
		change func(*spec)
		named  toolhive.Objects
		field  string
		says   string
	}
	ofAll := map[string]invalid{
		"authz of tomorrow": {"a field that is not known may be the one that protects", func(s *spec) { s.AuthzConfig = text(`{"type":"inline","inline":{"policies":["x"]},"strict":true}`) }, toolhive.Objects{}, "authzConfig", `unknown field "strict"`},
		"authz of neither":  {"the type says which", func(s *spec) { s.AuthzConfig = text(`{"type":"inline"}`) }, toolhive.Objects{}, "authzConfig", `type "inline" needs what it names`},
		"no policy":         {"all would be denied", func(s *spec) { s.AuthzConfig = text(`{"type":"inline","inline":{"policies":[]}}`) }, toolhive.Objects{}, "authzConfig", "has no policy"},
		"entities": {"the program would not start", func(s *spec) {
			s.AuthzConfig = text(`{"type":"inline","inline":{"policies":["x"],"entitiesJson":"{"}}`)
		}, toolhive.Objects{}, "authzConfig", "no JSON list"},
		"no key":                  {"nobody says what is permitted", refMap, policies("other", ""), "authzConfig", "has no key authz.json"},
		"no YAML":                 {"it cannot be read", refMap, policies("authz.json", "{"), "authzConfig", "neither JSON nor YAML"},
		"no policies":             {"it is something else", refMap, policies("authz.json", "a: b"), "authzConfig", `version "" and type ""`},
		"authz type":              {"the program does not know it", func(s *spec) { s.AuthzConfigRef = text(`{"name":"p"}`) }, toolhive.Objects{Authz: object("MCPAuthzConfig", "p", `{"type":"opa","config":{"a":"b"}}`)}, "authzConfigRef", `type "opa"`},
		"no audience":             {"any token would do", func(s *spec) { s.OIDCConfigRef = text(`{"name":"idp"}`) }, idp, "oidcConfigRef", "audience is empty"},
		"no issuer":               {"nobody could be let in, or everybody", oidcRef, toolhive.Objects{OIDC: object("MCPOIDCConfig", "idp", `{"type":"inline","inline":{}}`)}, "oidcConfigRef", "inline with an issuer"},
		"oidc of tomorrow":        {"as with policies", oidcRef, toolhive.Objects{OIDC: object("MCPOIDCConfig", "idp", `{"type":"inline","inline":{"issuer":"https://idp","requiredClaims":["x"]}}`)}, "oidcConfigRef", `unknown field "inline.requiredClaims"`},
		"audit of tomorrow":       {"it asks for what is not written", func(s *spec) { s.Audit = text(`{"enabled":true,"eventTypes":["x"]}`) }, toolhive.Objects{}, "audit", `unknown field "eventTypes"`},
		"annotations of a tool":   {"the file has no place for them", refTools, toolhive.Objects{Tool: object("MCPToolConfig", "tools", `{"toolsOverride":{"a":{"name":"b","annotations":{"readOnlyHint":true}}}}`)}, "toolConfigRef", "annotations for the tool a"},
		"empty override":          {"the program would not start", refTools, toolhive.Objects{Tool: object("MCPToolConfig", "tools", `{"toolsOverride":{"a":{}}}`)}, "toolConfigRef", "says nothing of the tool a"},
		"sampling":                {"it is none", func(s *spec) { s.TelemetryConfigRef = text(`{"name":"o"}`) }, toolhive.Objects{Telemetry: object("MCPTelemetryConfig", "o", `{"openTelemetry":{"enabled":true,"tracing":{"samplingRate":"often"}}}`)}, "telemetryConfigRef", `sampling rate "often"`},
		"limits without a store":  {"nothing would be counted", func(s *spec) { s.RateLimiting = text(`{"shared":{"maxTokens":1,"refillPeriod":"1s"}}`) }, toolhive.Objects{}, "rateLimiting", "provider redis"},
		"limits of nothing":       {"it looks like a limit", func(s *spec) { redis(s); s.RateLimiting = text(`{}`) }, toolhive.Objects{}, "rateLimiting", "limits nothing"},
		"limits without users":    {"all would share one", func(s *spec) { redis(s); s.RateLimiting = text(`{"perUser":{"maxTokens":1,"refillPeriod":"1s"}}`) }, toolhive.Objects{}, "rateLimiting", "spec.oidcConfigRef"},
		"limits of no period":     {"the program would not start", func(s *spec) { redis(s); s.RateLimiting = text(`{"shared":{"maxTokens":1,"refillPeriod":"often"}}`) }, toolhive.Objects{}, "rateLimiting", "often"},
		"no store":                {"sessions would be nowhere", func(s *spec) { s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis"} }, toolhive.Objects{}, "sessionStorage", "no address"},
		"store with TLS":          {"the password would go unencrypted", func(s *spec) { redis(s); s.SessionStorage.TLS = text(`{}`) }, toolhive.Objects{}, "sessionStorage", "--toolhive-proxy-version"},
		"TLS of tomorrow":         {"it may be the one that protects", func(s *spec) { redis(s); s.SessionStorage.TLS = text(`{"minVersion":"1.3"}`) }, toolhive.Objects{}, "sessionStorage", "minVersion"},
		"body of less":            {"nobody meant it", func(s *spec) { s.MaxRequestBodySize = -1 }, toolhive.Objects{}, "maxRequestBodySize", "positive"},
		"no time":                 {"the program would not start", func(s *spec) { s.ProxyReadTimeout = "soon" }, toolhive.Objects{}, "proxyReadTimeout", "such as 1m"},
		"upstream injection":      {"the server would get the token of the client", refAuth, auth(`{"type":"upstreamInject","upstreamInject":{"providerName":"a"}}`), "externalAuthConfigRef", `type "upstreamInject"`},
		"embedded server":         {"nobody would know its tokens", refAuth, auth(`{"type":"embeddedAuthServer"}`), "externalAuthConfigRef", "needs oidcConfigRef"},
		"tokens for another":      {"every request would be refused", refServer("fetch"), authServer(`"issuer":"https://as","upstreamProviders":[]`), "authServerRef", "write the same URL"},
		"no upstream":             {"nobody could log in", refServer("https://me"), authServer(`"issuer":"https://as","upstreamProviders":[]`), "authServerRef", "has 0 upstream providers"},
		"server of tomorrow":      {"it may be the one that protects", refServer("https://me"), authServer(`"issuer":"https://as","upstreamProviders":[],"inboundGrants":{}`), "authServerRef", `unknown field "embeddedAuthServer.inboundGrants"`},
		"server of today":         {"an older program would leave it out", refServer("https://me"), authServer(upstreamC + `,"tlsListener":{},"registrationRateLimit":{"maxTokens":1}`), "authServerRef", "embeddedAuthServer.tlsListener, embeddedAuthServer.registrationRateLimit is read by proxyrunners from v0.59.0 on, and the version of this one is unknown"},
		"client of today":         {"the same", refServer("https://me"), authServer(`"upstreamProviders":[{"name":"u","type":"oidc","oidcConfig":{"issuerUrl":"https://u","clientId":"c","caBundleRef":{"configMapRef":{"name":"ca"}}}}]`), "authServerRef", "upstreamProviders.oidcConfig.caBundleRef"},
		"issuer of today":         {"the same", refServer("https://me"), authServer(upstreamC + `,"trustedIssuers":[{"issuerUrl":"https://t","name":"t"}]`), "authServerRef", "trustedIssuers.name"},
		"upstream of no type":     {"nobody could be asked", refServer("https://me"), authServer(`"upstreamProviders":[{"name":"u","type":"oidc"}]`), "authServerRef", "write oidcConfig"},
		"two clients":             {"which of them?", refServer("https://me"), authServer(`"upstreamProviders":[{"name":"u","type":"oauth2","oauth2Config":{"clientId":"c","dcrConfig":{"discoveryUrl":"https://u"}}}]`), "authServerRef", "clientId, or dcrConfig"},
		"registered nowhere":      {"it could not begin", refServer("https://me"), authServer(`"upstreamProviders":[{"name":"u","type":"oauth2","oauth2Config":{"dcrConfig":{}}}]`), "authServerRef", "one of discoveryUrl"},
		"delegate for anybody":    {"it has no secret", refServer("https://me"), authServer(upstreamC + `,"delegateClients":[{"clientId":"d"}]`), "authServerRef", "delegateClients[0] lacks"},
		"storage of no type":      {"sessions would be lost", refServer("https://me"), authServer(upstreamC + `,"storage":{"type":"disk"}`), "authServerRef", `of type "disk"`},
		"storage without a user":  {"the program would not start", refServer("https://me"), authServer(upstreamC + `,"storage":{"type":"redis","redis":{"addr":"r:1"}}`), "authServerRef", "passwordSecretRef"},
		"storage nowhere":         {"the program would not start", refServer("https://me"), authServer(upstreamC + `,"storage":{"type":"redis","redis":{}}`), "authServerRef", "one of addr"},
		"exchange of tomorrow":    {"another token would be exchanged", refAuth, auth(`{"type":"tokenExchange","tokenExchange":{"tokenUrl":"https://t","audience":"a","subjectProviderName":"x"}}`), "externalAuthConfigRef", `unknown field "tokenExchange.subjectProviderName"`},
		"exchange for nobody":     {"the token would be good anywhere", refAuth, auth(`{"type":"tokenExchange","tokenExchange":{"tokenUrl":"https://t"}}`), "externalAuthConfigRef", "lacks tokenExchange"},
		"token type":              {"the program would not start", refAuth, auth(`{"type":"tokenExchange","tokenExchange":{"tokenUrl":"https://t","audience":"a","subjectTokenType":"saml"}}`), "externalAuthConfigRef", `subjectTokenType "saml"`},
		"webhooks of none":        {"nobody would be asked", refHooks, hooks(`{}`), "webhookConfigRef", "has no webhook"},
		"webhook over http":       {"anybody could answer", refHooks, hooks(`{"validating":[{"name":"a","url":"http://a"}]}`), "webhookConfigRef", "not https"},
		"webhook that is slow":    {"the program would not start", refHooks, hooks(`{"mutating":[{"name":"a","url":"https://a","timeout":"1h"}]}`), "webhookConfigRef", "write one from 1s to 30s"},
		"webhook without its key": {"the program would not start", refHooks, hooks(`{"validating":[{"name":"a","url":"https://a","tlsConfig":{"clientCertSecretRef":{"name":"a","key":"b"}}}]}`), "webhookConfigRef", "needs its key"},
	}
	const listener, upstream = `,"tlsListener":{"certificateSecretRef":{"name":"a","key":"b"}`, `"upstreamProviders":[{"name":"u","type":"oidc","oidcConfig":{"issuerUrl":"https://u",`
	// What only such a program reads.
	ofYounger := map[string]invalid{
		"listener without a key": {"the program would not start", refServer("https://me"), authServer(upstreamC + listener + `}`), "authServerRef", "privateKeySecretRef"},
		"listener on the port": {"there is one of each", func(s *spec) { refServer("https://me")(s); s.ProxyPort = 8443 },
			authServer(upstreamC + listener + `,"privateKeySecretRef":{"name":"a","key":"c"}}`), "authServerRef", "spec.proxyPort is 8443"},
		"no period":         {"the program would not start", refServer("https://me"), authServer(upstreamC + `,"registrationRateLimit":{"maxTokens":1}`), "authServerRef", "refillPeriod"},
		"bundle of nothing": {"whom is it to believe?", refServer("https://me"), authServer(upstreamC + `,"trustedIssuers":[{"issuerUrl":"https://t","caBundleRef":{}}]`), "authServerRef", "trustedIssuers[0].caBundleRef lacks"},
		"two clients":       {"which of them?", refServer("https://me"), authServer(upstream + `"clientId":"c","dcrConfig":{}}}]`), "authServerRef", "clientId, or dcrConfig"},
		"registered twice":  {"where?", refServer("https://me"), authServer(upstream + `"dcrConfig":{"discoveryUrl":"https://u","registrationEndpoint":"https://u"}}}]`), "authServerRef", "one of discoveryUrl"},
	}
	for program, cases := range map[*toolhive.Program]map[string]invalid{&older: ofAll, &younger: ofYounger} {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				proxy, wrong := toolhive.Make(server(c.change), base(), c.named, *program)
				if proxy != nil || len(wrong) != 1 || wrong[0].Field != c.field || !strings.Contains(wrong[0].Error(), c.says) {
					t.Errorf("%s: proxy %v, wrong %v; want one problem of %s that says %q", c.why, proxy, wrong, c.field, c.says)
				}
			})
		}
	}
}

// TestAllIsToldAtOnce spares people one round for each mistake.
func TestAllIsToldAtOnce(t *testing.T) {
	_, wrong := toolhive.Make(server(func(s *spec) {
		s.Audit, s.RateLimiting = text(`[]`), text(`[]`)
	}), base(), toolhive.Objects{}, older)
	if len(wrong) != 2 {
		t.Errorf("told: %v, want both fields", wrong)
	}
}

func TestPoliciesOf(t *testing.T) {
	for value, want := range map[string]string{
		`{"type":"configMap","configMap":{"name":"p"}}`: "p",
		`{"configMap":{"name":"p"}}`:                    "p",
		`{"type":"inline","configMap":{"name":"p"}}`:    "",
		`{"type":"configMap"}`:                          "",
		`[]`:                                            "",
	} {
		if got := toolhive.PoliciesOf(server(func(s *spec) { s.AuthzConfig = text(value) })); got != want {
			t.Errorf("of %s: %q, want %q", value, got, want)
		}
	}
	if got := toolhive.PoliciesOf(server(nil)); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
