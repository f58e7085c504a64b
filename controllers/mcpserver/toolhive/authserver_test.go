package toolhive_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

func TestAuthServers(t *testing.T) { testFields(t, authServers) }

var authServers = map[string]field{
	"authorization server": {
		why: "its tokens are good for the proxy, which gives the server those of the users' own provider; policies are about the latter",
		change: func(s *spec) {
			s.OIDCConfigRef = text(`{"name":"idp","audience":"https://me","resourceUrl":"https://me"}`)
			s.AuthServerRef = text(`{"kind":"MCPExternalAuthConfig","name":"as"}`)
			s.AuthzConfig = text(`{"type":"inline","inline":{"policies":["p"]}}`)
		},
		named: toolhive.Objects{OIDC: idp.OIDC, AuthServer: object("MCPExternalAuthConfig", "as", `{"type":"embeddedAuthServer","embeddedAuthServer":{
			"issuer":"https://as","authorizationEndpointBaseUrl":"https://base","insecureAllowHTTP":true,"forceConfidentialRedirectUris":["https://c"],
			"signingKeySecretRefs":[{"name":"keys","key":"a"},{"name":"keys","key":"b"}],"hmacSecretRefs":[{"name":"hmac","key":"h"}],
			"tokenLifespans":{"accessTokenLifespan":"1h"},"cimd":{"enabled":true,"cacheFallbackTtl":"5m"},"primaryUpstreamProvider":"idp-1",
			"delegateClients":[{"clientId":"d","clientSecretRef":{"name":"d","key":"k"},"scopes":["x"],"audiences":["y"]}],
			"trustedIssuers":[{"issuerUrl":"https://t","expectedAudience":"e","allowPrivateIPs":true,"allowedDelegateClients":["d"]}],
			"upstreamProviders":[{"name":"idp-1","type":"oauth2","oauth2Config":{"authorizationEndpoint":"https://u/a","tokenEndpoint":"https://u/t","clientId":"c",
				"clientSecretRef":{"name":"u","key":"s"},"additionalAuthorizationParams":{"accessType":"offline"},
				"userInfo":{"endpointUrl":"https://u/i","additionalHeaders":{"X-One":"1"},"fieldMapping":{"subjectFields":["id"]}},"identityFromToken":{"subjectPath":"sub"}}}],
			"storage":{"type":"redis","redis":{"sentinelConfig":{"masterName":"m","sentinelService":{"name":"redis"}},"aclUserConfig":{"usernameSecretRef":{"name":"r","key":"u"},"passwordSecretRef":{"name":"r","key":"p"}},
				"tls":{"caCertSecretRef":{"name":"r","key":"ca"}},"sentinelTls":{"insecureSkipVerify":true}}}}}`)},
		want: `{"oidc_config": {"Issuer":"https://idp","Audience":"https://me","JWKSURL":"","ClientID":"","ClientSecret":"","CACertPath":"","AuthTokenFile":"",
				"AllowPrivateIP":false,"InsecureAllowHTTP":false,"IntrospectionURL":"","ResourceURL":"https://me","Scopes":["openid","profile","email","offline_access"]},
			"authz_config": {"version":"1.0","type":"cedarv1","cedar":{"policies":["p"],"entities_json":"[]"}},
			"embedded_auth_server_config": {"schema_version":"v0.1.0","issuer":"https://as","authorization_endpoint_base_url":"https://base","insecure_allow_http":true,
				"force_confidential_redirect_uris":["https://c"],"allowed_audiences":["https://me"],
				"signing_key_config":{"key_dir":"/etc/toolhive/authserver/keys","signing_key_file":"key-0.pem","fallback_key_files":["key-1.pem"]},
				"hmac_secret_files":["/etc/toolhive/authserver/hmac/hmac-0"],"token_lifespans":{"access_token_lifespan":"1h"},"cimd":{"enabled":true,"cache_fallback_ttl":"5m"},
				"delegate_clients":[{"client_id":"d","client_secret_env_var":"TOOLHIVE_DELEGATE_CLIENT_SECRET_0","scopes":["x"],"audiences":["y"]}],
				"trusted_issuers":[{"issuer_url":"https://t","expected_audience":"e","allow_private_ips":true,"allowed_delegate_clients":["d"]}],
				"upstreams":[{"name":"idp-1","type":"oauth2","oauth2_config":{"authorization_endpoint":"https://u/a","token_endpoint":"https://u/t","client_id":"c",
					"client_secret_env_var":"TOOLHIVE_UPSTREAM_CLIENT_SECRET_IDP_1","redirect_uri":"https://me/oauth/callback","additional_authorization_params":{"accessType":"offline"},
					"userinfo":{"endpoint_url":"https://u/i","additional_headers":{"X-One":"1"},"field_mapping":{"subject_fields":["id"]}},"identity_from_token":{"subject_path":"sub"}}}],
				"storage":{"type":"redis","redis_config":{"auth_type":"aclUser","key_prefix":"thv:auth:{demo:fetch}:",
					"acl_user_config":{"username_env_var":"TOOLHIVE_AUTH_SERVER_REDIS_USERNAME","password_env_var":"TOOLHIVE_AUTH_SERVER_REDIS_PASSWORD"},
					"sentinel_config":{"master_name":"m","sentinel_addrs":["redis.demo.svc.cluster.local:26379"]},
					"tls":{"ca_cert_file":"/etc/toolhive/authserver/redis-tls/ca.crt"},"sentinel_tls":{"insecure_skip_verify":true}}}}}`,
		middleware: []string{"upstreamswap", "authorization"},
		env: []corev1.EnvVar{secret("TOOLHIVE_UPSTREAM_CLIENT_SECRET_IDP_1", "u", "s"), secret("TOOLHIVE_DELEGATE_CLIENT_SECRET_0", "d", "k"),
			secret("TOOLHIVE_AUTH_SERVER_REDIS_USERNAME", "r", "u"), secret("TOOLHIVE_AUTH_SERVER_REDIS_PASSWORD", "r", "p")},
		mounts: []string{"authz-config /etc/toolhive/authz", "authserver-signing-key-0 /etc/toolhive/authserver/keys/key-0.pem", "authserver-signing-key-1 /etc/toolhive/authserver/keys/key-1.pem",
			"authserver-hmac-secret-0 /etc/toolhive/authserver/hmac/hmac-0", "redis-tls-ca-master /etc/toolhive/authserver/redis-tls/ca.crt"},
	},
	"authorization server of externalAuthConfigRef": {
		why: "it registers itself, and the server is to get no token",
		change: func(s *spec) {
			s.OIDCConfigRef = text(`{"name":"idp","audience":"https://me","resourceUrl":"https://me","scopes":["a"]}`)
			s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "as"}
		},
		named: toolhive.Objects{OIDC: idp.OIDC, ExternalAuth: object("MCPExternalAuthConfig", "as", `{"type":"embeddedAuthServer","embeddedAuthServer":{"issuer":"https://as","disableUpstreamTokenInjection":true,
			"cimd":{"enabled":false},"storage":{"type":"memory"},"upstreamProviders":[{"type":"oauth2","oauth2Config":{"authorizationEndpoint":"https://u/a","tokenEndpoint":"https://u/t",
				"dcrConfig":{"discoveryUrl":"https://u","initialAccessTokenRef":{"name":"u","key":"t"}}}}]}}`)},
		want: `{"oidc_config": {"Issuer":"https://idp","Audience":"https://me","JWKSURL":"","ClientID":"","ClientSecret":"","CACertPath":"","AuthTokenFile":"",
				"AllowPrivateIP":false,"InsecureAllowHTTP":false,"IntrospectionURL":"","ResourceURL":"https://me","Scopes":["a"]},
			"embedded_auth_server_config": {"schema_version":"v0.1.0","issuer":"https://as","allowed_audiences":["https://me"],"scopes_supported":["a"],"disable_upstream_token_injection":true,
				"upstreams":[{"type":"oauth2","oauth2_config":{"authorization_endpoint":"https://u/a","token_endpoint":"https://u/t","redirect_uri":"https://me/oauth/callback",
					"dcr_config":{"discovery_url":"https://u","initial_access_token_env_var":"TOOLHIVE_UPSTREAM_DCR_INITIAL_ACCESS_TOKEN_"}}}]}}`,
		middleware: []string{"strip-auth"}, env: []corev1.EnvVar{secret("TOOLHIVE_UPSTREAM_DCR_INITIAL_ACCESS_TOKEN_", "u", "t")},
	},
}

// TestFieldsThatTheirAPIServerFillsIn: the CRD of v0.63.0 writes this one into every authorization server.
func TestFieldsThatTheirAPIServerFillsIn(t *testing.T) {
	c := authServers["authorization server of externalAuthConfigRef"]
	for value, want := range map[bool]any{false: nil, true: true} {
		config := c.named.ExternalAuth.DeepCopy()
		config.Object["spec"].(map[string]any)["embeddedAuthServer"].(map[string]any)["allowPrivateKeyJWTRegistration"] = value
		file := values(t, make1(t, server(c.change), toolhive.Objects{OIDC: c.named.OIDC, ExternalAuth: config}).Config).(map[string]any)
		if got := file["embedded_auth_server_config"].(map[string]any)["allow_private_key_jwt_registration"]; got != want {
			t.Errorf("of %v the file has %v, want %v", value, got, want)
		}
	}
}
