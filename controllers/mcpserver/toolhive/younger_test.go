package toolhive_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

// TestYoungerFields is about what a program of v0.44.0 does not read.
func TestYoungerFields(t *testing.T) {
	testFields(t, map[string]field{
		"redis with TLS": {
			why: "limits are counted in the same store",
			change: func(s *spec) {
				redis(s)
				s.SessionStorage.TLS = text(`{"caCertSecretRef":{"name":"r","key":"ca"},"insecureSkipVerify":false}`)
				s.RateLimiting = text(`{"shared":{"maxTokens":10,"refillPeriod":"60s"}}`)
			},
			want: `{"scaling_config": {"session_redis": {"address":"r:6379","db":2,"key_prefix":"p:","tls":{"caCertFile":"/etc/toolhive/session-redis-tls/ca.crt"}}}, "rate_limit_namespace": "demo",
				"rate_limit_config": {"shared":{"maxTokens":10,"refillPeriod":"1m0s"}}}`,
			middleware: []string{"ratelimit"}, env: []corev1.EnvVar{secret("THV_SESSION_REDIS_PASSWORD", "pw", "k")},
			mounts: []string{"session-redis-tls-ca /etc/toolhive/session-redis-tls/ca.crt"},
		},
		"redis with TLS of the system": {
			why: "the empty object asks for encryption", change: func(s *spec) { redis(s); s.SessionStorage.TLS = text(`{}`) },
			want: `{"scaling_config": {"session_redis": {"address":"r:6379","db":2,"key_prefix":"p:","tls":{}}}}`,
			env:  []corev1.EnvVar{secret("THV_SESSION_REDIS_PASSWORD", "pw", "k")},
		},
		"authorization server": {
			why:    "certificates are files, and what tells data from fields stays as it is",
			change: loggingIn,
			named: toolhive.Objects{OIDC: idp.OIDC, AuthServer: object("MCPExternalAuthConfig", "as", `{"type":"embeddedAuthServer","embeddedAuthServer":{"issuer":"https://as",
				"tlsListener":{"certificateSecretRef":{"name":"tls","key":"c"},"privateKeySecretRef":{"name":"tls","key":"k"}},
				"registrationRateLimit":{"maxTokens":30,"refillPeriod":"1m"},"storage":{"type":"memory","maxDCRClients":9},
				"trustedIssuers":[{"name":"t","issuerUrl":"https://t","expectedAudience":"e","caBundleRef":{"configMapRef":{"name":"issuer","key":"x.pem"}}}],
				"upstreamProviders":[{"name":"u","type":"oidc","oidcConfig":{"issuerUrl":"https://u","allowPrivateIPs":true,"omitScopeOnRefresh":true,
					"additionalTokenParams":{"accessType":"offline"},"caBundleRef":{"configMapRef":{"name":"upstream"}},
					"dcrConfig":{"initialAccessTokenRef":{"name":"u","key":"t"},"rotationKey":"1","registrationProbe":"none","registrationProbeInterval":"1h"}}}]}}`)},
			want: `{` + loggedIn + `, "embedded_auth_server_config": {"schema_version":"v0.1.0","issuer":"https://as","allowed_audiences":["https://me"],
				"tls_listener":{"cert_file":"/etc/toolhive/authserver/tls/tls.crt","key_file":"/etc/toolhive/authserver/tls/tls.key"},
				"registration_rate_limit":{"requests_per_second":0.5,"burst":30},"storage":{"type":"memory","max_dcr_clients":9},
				"trusted_issuers":[{"name":"t","issuer_url":"https://t","expected_audience":"e","ca_file_path":"/etc/toolhive/authserver/issuer-ca/0/ca.crt"}],
				"upstreams":[{"name":"u","type":"oidc","oidc_config":{"issuer_url":"https://u","allow_private_ips":true,"omit_scope_on_refresh":true,"redirect_uri":"https://me/oauth/callback",
					"additional_token_params":{"accessType":"offline"},"ca_file_path":"/etc/toolhive/authserver/upstream-ca/0/ca.crt",
					"dcr_config":{"initial_access_token_env_var":"TOOLHIVE_UPSTREAM_DCR_INITIAL_ACCESS_TOKEN_U","rotation_key":"1","registration_probe":"none","registration_probe_interval":"1h0m0s"}}}]}}`,
			middleware: []string{"upstreamswap"}, env: []corev1.EnvVar{secret("TOOLHIVE_UPSTREAM_DCR_INITIAL_ACCESS_TOKEN_U", "u", "t")},
			mounts: []string{"authserver-tls-listener /etc/toolhive/authserver/tls", "authserver-upstream-ca-0 /etc/toolhive/authserver/upstream-ca/0/ca.crt",
				"authserver-issuer-ca-0 /etc/toolhive/authserver/issuer-ca/0/ca.crt"},
		},
		"another of OAuth 2": {
			why: "a method of the endpoint", change: loggingIn,
			named: toolhive.Objects{OIDC: idp.OIDC, AuthServer: object("MCPExternalAuthConfig", "as", `{"type":"embeddedAuthServer","embeddedAuthServer":{"issuer":"https://as",
				"upstreamProviders":[{"name":"u","type":"oauth2","oauth2Config":{"authorizationEndpoint":"https://u/a","tokenEndpoint":"https://u/t","clientId":"c","tokenEndpointAuthMethod":"client_secret_post"}}]}}`)},
			want: `{` + loggedIn + `, "embedded_auth_server_config": {"schema_version":"v0.1.0","issuer":"https://as","allowed_audiences":["https://me"],
				"upstreams":[{"name":"u","type":"oauth2","oauth2_config":{"authorization_endpoint":"https://u/a","token_endpoint":"https://u/t","client_id":"c","redirect_uri":"https://me/oauth/callback",
					"token_endpoint_auth_method":"client_secret_post"}}]}}`,
			middleware: []string{"upstreamswap"},
		},
		"header injection": {
			why:    "the program sends it to servers elsewhere only: the server runs without",
			change: func(s *spec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} },
			named:  toolhive.Objects{ExternalAuth: object("MCPExternalAuthConfig", "auth", `{"type":"headerInjection","headerInjection":{"headerName":"X-Key","valueSecretRef":{"name":"s","key":"k"}}}`)}, want: `{}`,
		},
	})
}

func loggingIn(s *spec) {
	s.OIDCConfigRef = text(`{"name":"idp","audience":"https://me","resourceUrl":"https://me"}`)
	s.AuthServerRef = text(`{"kind":"MCPExternalAuthConfig","name":"as"}`)
}

const loggedIn = `"oidc_config": {"Issuer":"https://idp","Audience":"https://me","JWKSURL":"","ClientID":"","ClientSecret":"","CACertPath":"","AuthTokenFile":"",
	"AllowPrivateIP":false,"InsecureAllowHTTP":false,"IntrospectionURL":"","ResourceURL":"https://me","Scopes":["openid","profile","email","offline_access"]}`

// TestListenerOfTwoSecrets: a directory has files of both.
func TestListenerOfTwoSecrets(t *testing.T) {
	proxy := make1(t, server(loggingIn), toolhive.Objects{OIDC: idp.OIDC, AuthServer: object("MCPExternalAuthConfig", "as", `{"type":"embeddedAuthServer","embeddedAuthServer":{"issuer":"https://as",
		"tlsListener":{"certificateSecretRef":{"name":"z","key":"c"},"privateKeySecretRef":{"name":"a","key":"k"}},
		"upstreamProviders":[{"name":"u","type":"oidc","oidcConfig":{"issuerUrl":"https://u","clientId":"c"}}]}}`)})
	want := []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "z"}, Items: []corev1.KeyToPath{{Key: "c", Path: "tls.crt"}}}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, Items: []corev1.KeyToPath{{Key: "k", Path: "tls.key"}}}},
	}
	if diff := cmp.Diff(want, proxy.Volumes[0].Projected.Sources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWhichProgramsAreYounger: one release before, one field was missing.
func TestWhichProgramsAreYounger(t *testing.T) {
	for version, want := range map[string]bool{"v0.44.0": false, "v0.58.0": false, "v0.59.0-rc.1": false, "v0.59.0": true, "v0.63.0": true, "v1.0.0": true} {
		_, wrong := toolhive.Make(server(func(s *spec) { redis(s); s.SessionStorage.TLS = text(`{}`) }), base(), toolhive.Objects{}, must(toolhive.ProgramOf("thv", version)))
		if got := len(wrong) == 0; got != want {
			t.Errorf("%s is known to read TLS of a store = %v, want %v: %v", version, got, want, wrong)
		}
	}
}

// TestUnsent: what is not sent to the server is named.
func TestUnsent(t *testing.T) {
	for kind, want := range map[string]string{
		"headerInjection": "MCPExternalAuthConfig auth of type headerInjection", "bearerToken": "MCPExternalAuthConfig auth of type bearerToken", "unauthenticated": "",
	} {
		proxy := make1(t, server(func(s *spec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} }),
			toolhive.Objects{ExternalAuth: object("MCPExternalAuthConfig", "auth", `{"type":"`+kind+`"}`)})
		if proxy.Unsent != want {
			t.Errorf("of type %s: %q, want %q", kind, proxy.Unsent, want)
		}
	}
}
