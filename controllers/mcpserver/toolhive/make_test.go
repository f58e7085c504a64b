package toolhive_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/controllers/mcpserver/toolhive"
)

func server(change func(*v1beta1.MCPServerSpec)) *v1beta1.MCPServer {
	srv := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: "fetch", Namespace: "demo", UID: "u-1"}}
	srv.Spec.Image, srv.Spec.Transport = "example.org/fetch:1", v1beta1.TransportStreamableHTTP
	if change != nil {
		change(&srv.Spec)
	}
	return srv
}

// base is what every proxy is told, as far as it matters here.
func base() *runconfig.RunConfig {
	return &runconfig.RunConfig{
		SchemaVersion: "v0.1.0", Name: "fetch", ContainerName: "fetch", BaseName: "fetch", Image: "example.org/fetch:1",
		Transport: "streamable-http", ProxyMode: "streamable-http", Port: 8080, TargetPort: 8080,
		EnvVars:         map[string]string{"MCP_TRANSPORT": "streamable-http"},
		ContainerLabels: map[string]string{"toolhive": "true"},
		ScalingConfig:   &runconfig.ScalingConfig{BackendReplicas: new(int32(2))},
		Owner:           &runconfig.Owner{Name: "fetch", UID: "u-1"},
	}
}

// younger is a program that reads all fields, older one that does not, or of which nobody knows.
var (
	younger = must(toolhive.ProgramOf("thv:v0.63.0", ""))
	older   toolhive.Program
)

func must(program toolhive.Program, err error) toolhive.Program {
	if err != nil {
		panic(err)
	}
	return program
}

func text(value string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(value)} }

// object has the spec, as JSON.
func object(kind, name, spec string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetKind(kind)
	u.SetName(name)
	var content any
	if err := json.Unmarshal([]byte(spec), &content); err != nil {
		panic(err)
	}
	u.Object["spec"] = content
	return u
}

func make1(t *testing.T, srv *v1beta1.MCPServer, named toolhive.Objects) *toolhive.Proxy {
	t.Helper()
	proxy, wrong := toolhive.Make(srv, base(), named, younger)
	for _, w := range wrong {
		t.Fatal(w)
	}
	return proxy
}

// values is a value as the program reads it.
func values(t *testing.T, value any) any {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var read any
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// fromJSON is what a test wants.
func fromJSON(t *testing.T, data string) any {
	t.Helper()
	var read any
	if err := json.Unmarshal([]byte(data), &read); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return read
}

// TestPlain holds the whole file of a server that asks for nothing but to be run.
func TestPlain(t *testing.T) {
	srv := server(func(s *v1beta1.MCPServerSpec) {
		s.BackendReplicas, s.MCPPort = new(int32(2)), 9000
		s.Volumes = []v1beta1.Volume{{HostPath: "/srv", MountPath: "/data", ReadOnly: true}, {HostPath: "/a", MountPath: "/b"}}
		s.PermissionProfile = &v1beta1.PermissionProfileRef{Type: "builtin", Name: "none"}
	})
	got := values(t, make1(t, srv, toolhive.Objects{}).Config)
	want := fromJSON(t, `{
	  "schema_version": "v0.1.0", "name": "fetch", "container_name": "fetch", "base_name": "fetch", "image": "example.org/fetch:1",
	  "transport": "streamable-http", "proxy_mode": "streamable-http", "host": "0.0.0.0", "port": 8080, "target_port": 9000,
	  "env_vars": {"MCP_TRANSPORT": "streamable-http"},
	  "container_labels": {"toolhive": "true", "toolhive-port": "8080"},
	  "permission_profile": {"name": "network", "read": ["/srv:/data"], "write": ["/a:/b"], "network": {"outbound": {"insecure_allow_all": true}}},
	  "volumes": ["/srv:/data:ro", "/a:/b"],
	  "scaling_config": {"backend_replicas": 2},
	  "middleware_configs": [
	    {"type": "bodylimit", "parameters": {"max_bytes": 8388608}},
	    {"type": "auth", "parameters": {}},
	    {"type": "mcp-parser", "parameters": {}},
	    {"type": "recovery", "parameters": null}
	  ]}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestContent is about what a proxy must be started anew for.
func TestContent(t *testing.T) {
	srv := server(func(s *v1beta1.MCPServerSpec) {
		s.BackendReplicas = new(int32(2))
		s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:6379"}
	})
	rc := make1(t, srv, toolhive.Objects{}).Config
	rc.MCPServerGeneration = 7
	before := values(t, rc)
	content := values(t, rc.Content()).(map[string]any)
	if content["mcpserver_generation"] != nil || !cmp.Equal(content["scaling_config"], fromJSON(t, `{"session_redis": {"address": "r:6379"}}`)) {
		t.Errorf("generation %v and scaling %v: the generation and the number of backend pods need no new proxy, the store of sessions does",
			content["mcpserver_generation"], content["scaling_config"])
	}
	if diff := cmp.Diff(before, values(t, rc)); diff != "" {
		t.Errorf("the file itself changed (-before +after):\n%s", diff)
	}
}

// secret is a variable that is a key of a Secret.
func secret(name, from, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: from}, Key: key}}}
}

type spec = v1beta1.MCPServerSpec

// field is a case of one field: what the file says of it, and what the pod has for it.
type field struct {
	why    string
	change func(*spec)
	named  toolhive.Objects
	// want is what the file has besides that of a plain server, as JSON.
	want string
	// middleware are the types in the list that a plain server does not have.
	middleware []string
	env        []corev1.EnvVar
	// mounts are volumes and paths.
	mounts []string
}

func oidcRef(s *spec) {
	s.OIDCConfigRef = text(`{"name":"idp","audience":"fetch","scopes":["a"]}`)
}

func redis(s *spec) {
	s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: "r:6379", DB: 2, KeyPrefix: "p:", PasswordRef: &v1beta1.SecretKeyRef{Name: "pw", Key: "k"}}
}

var idp = toolhive.Objects{OIDC: object("MCPOIDCConfig", "idp", `{"type":"inline","inline":{"issuer":"https://idp"}}`)}

const idpFile = `"oidc_config": {"Issuer":"https://idp","Audience":"fetch","JWKSURL":"","ClientID":"","ClientSecret":"","CACertPath":"","AuthTokenFile":"",
	"AllowPrivateIP":false,"InsecureAllowHTTP":false,"IntrospectionURL":"","ResourceURL":"http://mcp-fetch-proxy.demo.svc.cluster.local:8080","Scopes":["a"]}`

var fields = map[string]field{
	"authz inline": {
		why: "the policies are in the file, so that the program refuses what they do not permit",
		change: func(s *spec) {
			s.AuthzConfig = text(`{"type":"inline","inline":{"policies":["permit(principal, action, resource);"]},"groupClaimName":"groups"}`)
		},
		want:       `{"authz_config": {"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal, action, resource);"],"entities_json":"[]","group_claim_name":"groups"}}}`,
		middleware: []string{"authorization"}, mounts: []string{"authz-config /etc/toolhive/authz"},
	},
	"authz of a ConfigMap": {
		why: "YAML is as good as JSON, and what the spec says of claims goes over it",
		change: func(s *spec) {
			s.AuthzConfig = text(`{"type":"configMap","configMap":{"name":"policies","key":"p.yaml"},"roleClaimName":"roles"}`)
		},
		named: toolhive.Objects{Policies: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "policies"},
			Data: map[string]string{"p.yaml": "version: \"1.0\"\ntype: cedarv1\ncedar:\n  policies: [\"forbid(principal, action, resource);\"]\n  entities_json: \"[]\"\n  role_claim_name: old\n"}}},
		want:       `{"authz_config": {"version":"1.0","type":"cedarv1","cedar":{"policies":["forbid(principal, action, resource);"],"entities_json":"[]","role_claim_name":"roles"}}}`,
		middleware: []string{"authorization"}, mounts: []string{"authz-config /etc/toolhive/authz"},
	},
	"authz of an MCPAuthzConfig": {
		why:        "the configuration of its type goes under the key of that type",
		change:     func(s *spec) { s.AuthzConfigRef = text(`{"name":"policies"}`) },
		named:      toolhive.Objects{Authz: object("MCPAuthzConfig", "policies", `{"type":"httpv1","config":{"http":{"url":"https://pdp"}}}`)},
		want:       `{"authz_config": {"version":"1.0","type":"httpv1","pdp":{"http":{"url":"https://pdp"}}}}`,
		middleware: []string{"authorization"},
	},
	"oidc inline": {
		why: "of the client's secret, only a variable tells", change: oidcRef,
		named: toolhive.Objects{OIDC: object("MCPOIDCConfig", "idp", `{"type":"inline","inline":{"issuer":"https://idp","jwksUrl":"https://idp/keys","introspectionUrl":"https://idp/i",
			"clientId":"c","clientSecretRef":{"name":"idp","key":"secret"},"caBundleRef":{"configMapRef":{"name":"ca"}},"jwksAuthTokenPath":"/t","jwksAllowPrivateIP":true,"insecureAllowHTTP":true}}`)},
		want: `{"oidc_config": {"Issuer":"https://idp","Audience":"fetch","JWKSURL":"https://idp/keys","ClientID":"c","ClientSecret":"","CACertPath":"/config/certs/ca/ca.crt","AuthTokenFile":"/t",
			"AllowPrivateIP":true,"InsecureAllowHTTP":true,"IntrospectionURL":"https://idp/i","ResourceURL":"http://mcp-fetch-proxy.demo.svc.cluster.local:8080","Scopes":["a"]},
			"thv_ca_bundle": "/config/certs/ca/ca.crt", "jwks_auth_token_file": "/t"}`,
		env: []corev1.EnvVar{secret("TOOLHIVE_OIDC_CLIENT_SECRET", "idp", "secret")}, mounts: []string{"oidc-ca-bundle-ca /config/certs/ca"},
	},
	"oidc of ServiceAccounts": {
		why:    "the API server is who knows their keys, and it asks for a token itself",
		change: func(s *spec) { s.OIDCConfigRef = text(`{"name":"idp","audience":"fetch","resourceUrl":"https://me"}`) },
		named:  toolhive.Objects{OIDC: object("MCPOIDCConfig", "idp", `{"type":"kubernetesServiceAccount"}`)},
		want: `{"oidc_config": {"Issuer":"https://kubernetes.default.svc","Audience":"fetch","JWKSURL":"","ClientID":"","ClientSecret":"",
			"CACertPath":"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt","AuthTokenFile":"/var/run/secrets/kubernetes.io/serviceaccount/token",
			"AllowPrivateIP":true,"InsecureAllowHTTP":false,"IntrospectionURL":"","ResourceURL":"https://me","Scopes":null},
			"thv_ca_bundle": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "jwks_auth_token_file": "/var/run/secrets/kubernetes.io/serviceaccount/token"}`,
	},
	"oidc of ServiceAccounts elsewhere": {
		why: "another cluster does not know this pod's token", change: oidcRef,
		named: toolhive.Objects{OIDC: object("MCPOIDCConfig", "idp", `{"type":"kubernetesServiceAccount","kubernetesServiceAccount":{"issuer":"https://idp","useClusterAuth":false}}`)},
		want:  `{` + idpFile + `}`,
	},
	"one request": {
		why:    "the limit is that of the spec",
		change: func(s *spec) { s.MaxRequestBodySize, s.ProxyReadTimeout = 1000, "60s" },
		want:   `{"max_request_body_size": 1000, "proxy_read_timeout": "1m0s"}`,
	},
	"audit": {
		why: "its being there switches it on", change: func(s *spec) { s.Audit = text(`{"enabled":true}`) },
		want: `{"audit_config": {"detectApplicationErrors":true,"maxDataSize":1024}}`, middleware: []string{"audit"},
	},
	"no audit": {why: "it asks for nothing", change: func(s *spec) { s.Audit = text(`{"enabled":false}`) }, want: `{}`},
	"tools": {
		why:        "a tool that is not named is neither listed nor called",
		change:     func(s *spec) { s.ToolConfigRef = &v1beta1.LocalRef{Name: "tools"} },
		named:      toolhive.Objects{Tool: object("MCPToolConfig", "tools", `{"toolsFilter":["a"],"toolsOverride":{"b":{"name":"a","description":"A."}}}`)},
		want:       `{"tools_filter": ["a"], "tools_override": {"b":{"name":"a","description":"A."}}}`,
		middleware: []string{"tool-filter", "tool-call-filter"},
	},
	"telemetry": {
		why:    "headers that are secret are variables",
		change: func(s *spec) { s.TelemetryConfigRef = text(`{"name":"otel","serviceName":"f"}`) },
		named: toolhive.Objects{Telemetry: object("MCPTelemetryConfig", "otel", `{"openTelemetry":{"enabled":true,"endpoint":"https://otel:4318","insecure":true,"headers":{"a":"b"},"resourceAttributes":{"c":"d"},
			"sensitiveHeaders":[{"name":"X-Key","secretKeyRef":{"name":"otel","key":"k"}}],"caBundleRef":{"configMapRef":{"name":"ca","key":"x.crt"}},
			"tracing":{"enabled":true,"samplingRate":"0.50"},"metrics":{"enabled":true},"useLegacyAttributes":true},"prometheus":{"enabled":true,"metricsOnTransportPort":false}}`)},
		want: `{"telemetry_config": {"endpoint":"otel:4318","serviceName":"f","tracingEnabled":true,"metricsEnabled":true,"samplingRate":"0.5","headers":{"a":"b"},"insecure":true,
			"enablePrometheusMetricsPath":true,"metricsOnTransportPort":false,"customAttributes":{"c":"d"},"useLegacyAttributes":true,"caCertPath":"/config/certs/otel/ca/x.crt"}}`,
		middleware: []string{"telemetry"},
		env:        []corev1.EnvVar{{Name: "OTEL_RESOURCE_ATTRIBUTES", Value: "service.name=f,service.namespace=demo"}, secret("TOOLHIVE_OTEL_HEADER_X_KEY", "otel", "k")},
		mounts:     []string{"otel-ca-bundle-ca /config/certs/otel/ca"},
	},
	"telemetry that is off": {
		why:        "a collector that is not enabled gets nothing",
		change:     func(s *spec) { s.TelemetryConfigRef = text(`{"name":"otel"}`) },
		named:      toolhive.Objects{Telemetry: object("MCPTelemetryConfig", "otel", `{"openTelemetry":{"enabled":false,"endpoint":"https://otel:4318"}}`)},
		want:       `{"telemetry_config": {"serviceName":"fetch","tracingEnabled":false,"metricsEnabled":false,"useLegacyAttributes":false}}`,
		middleware: []string{"telemetry"},
		env:        []corev1.EnvVar{{Name: "OTEL_RESOURCE_ATTRIBUTES", Value: "service.name=fetch,service.namespace=demo"}},
	},
	"redis": {
		why: "the password is a variable", change: redis,
		want: `{"scaling_config": {"session_redis": {"address":"r:6379","db":2,"key_prefix":"p:"}}}`,
		env:  []corev1.EnvVar{secret("THV_SESSION_REDIS_PASSWORD", "pw", "k")},
	},
	"rate limits": {
		why: "they count in the store of the sessions",
		change: func(s *spec) {
			redis(s)
			oidcRef(s)
			s.RateLimiting = text(`{"shared":{"maxTokens":10,"refillPeriod":"60s"},"tools":[{"name":"a","perUser":{"maxTokens":1,"refillPeriod":"1s"}}]}`)
		},
		named: idp,
		want: `{` + idpFile + `, "scaling_config": {"session_redis": {"address":"r:6379","db":2,"key_prefix":"p:"}}, "rate_limit_namespace": "demo",
			"rate_limit_config": {"shared":{"maxTokens":10,"refillPeriod":"1m0s"},"tools":[{"name":"a","perUser":{"maxTokens":1,"refillPeriod":"1s"}}]}}`,
		middleware: []string{"ratelimit"},
		env:        []corev1.EnvVar{secret("THV_SESSION_REDIS_PASSWORD", "pw", "k")},
	},
	"token exchange": {
		why:    "the token of the client becomes one for the server, in a header of its own",
		change: func(s *spec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} },
		named: toolhive.Objects{ExternalAuth: object("MCPExternalAuthConfig", "auth", `{"type":"tokenExchange","tokenExchange":{"tokenUrl":"https://idp/token","clientId":"c",
			"clientSecretRef":{"name":"idp","key":"secret"},"audience":"api","scopes":["x"],"subjectTokenType":"id_token","externalTokenHeaderName":"X-Token"}}`)},
		want: `{"token_exchange_config": {"token_url":"https://idp/token","client_id":"c","client_secret":"","audience":"api","scopes":["x"],
			"subject_token_type":"urn:ietf:params:oauth:token-type:id_token","header_strategy":"custom","external_token_header_name":"X-Token"}}`,
		middleware: []string{"tokenexchange"}, env: []corev1.EnvVar{secret("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", "idp", "secret")},
	},
	"unauthenticated": {
		why:    "it says that nothing is done",
		change: func(s *spec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "auth"} },
		named:  toolhive.Objects{ExternalAuth: object("MCPExternalAuthConfig", "auth", `{"type":"unauthenticated"}`)}, want: `{}`,
	},
	"webhooks": {
		why:    "keys and certificates are files",
		change: func(s *spec) { s.WebhookConfigRef = text(`{"name":"hooks"}`) },
		named: toolhive.Objects{Webhook: object("MCPWebhookConfig", "hooks", `{"validating":[{"name":"v-1","url":"https://v","timeout":"5s","failurePolicy":"ignore","hmacSecretRef":{"name":"s","key":"k"}}],
			"mutating":[{"name":"m","url":"http://m","tlsConfig":{"insecureSkipVerify":true,"caSecretRef":{"name":"s","key":"ca"}}}]}`)},
		want: `{"validating_webhooks": [{"name":"v-1","url":"https://v","timeout":5000000000,"failure_policy":"ignore",
				"hmac_secret_ref":"/etc/toolhive/webhooks/webhook_validating_v_1_hmac_719bf800/hmac"}],
			"mutating_webhooks": [{"name":"m","url":"http://m","timeout":0,"failure_policy":"fail",
				"tls_config":{"ca_bundle_path":"/etc/toolhive/webhooks/webhook_mutating_m_tls_ca_699bd3fb/ca.crt","insecure_skip_verify":true}}]}`,
		middleware: []string{"mutating-webhook", "validating-webhook"},
		mounts: []string{"whsec-966aaa85 /etc/toolhive/webhooks/webhook_validating_v_1_hmac_719bf800/hmac",
			"whsec-efc654e5 /etc/toolhive/webhooks/webhook_mutating_m_tls_ca_699bd3fb/ca.crt"},
	},
}

func TestFields(t *testing.T) { testFields(t, fields) }

func testFields(t *testing.T, fields map[string]field) {
	t.Helper()
	plain := values(t, make1(t, server(nil), toolhive.Objects{}).Config).(map[string]any)
	usual := types(plain)
	for name, c := range fields {
		t.Run(name, func(t *testing.T) {
			proxy := make1(t, server(c.change), c.named)
			got := values(t, proxy.Config).(map[string]any)
			var added []string
			for _, kind := range types(got) {
				if !strings.Contains(" "+strings.Join(usual, " ")+" ", " "+kind+" ") {
					added = append(added, kind)
				}
			}
			if diff := cmp.Diff(c.middleware, added); diff != "" {
				t.Errorf("%s: middleware (-want +got):\n%s", c.why, diff)
			}
			for key, value := range plain {
				if cmp.Equal(got[key], value) || key == "middleware_configs" {
					delete(got, key)
				}
			}
			if diff := cmp.Diff(fromJSON(t, c.want), any(got)); diff != "" {
				t.Errorf("%s: file (-want +got):\n%s", c.why, diff)
			}
			if diff := cmp.Diff(c.env, proxy.Env); diff != "" {
				t.Errorf("%s: variables (-want +got):\n%s", c.why, diff)
			}
			var mounts []string
			for _, m := range proxy.Mounts {
				mounts = append(mounts, m.Name+" "+m.MountPath)
			}
			if diff := cmp.Diff(c.mounts, mounts); diff != "" {
				t.Errorf("%s: mounts (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

// types are those of the middlewares.
func types(file map[string]any) (kinds []string) {
	for _, m := range file["middleware_configs"].([]any) {
		kinds = append(kinds, m.(map[string]any)["type"].(string))
	}
	return kinds
}

// The list of middlewares is what counts, and each has its own copy of what it needs.
func TestParametersOfMiddlewares(t *testing.T) {
	as := authServers["authorization server"]
	encrypted := func(s *spec) {
		redis(s)
		s.SessionStorage.TLS, s.RateLimiting = text(`{"insecureSkipVerify":true}`), text(`{"shared":{"maxTokens":10,"refillPeriod":"60s"}}`)
	}
	for kind, c := range map[string]struct {
		why    string
		change func(*spec)
		named  toolhive.Objects
		want   string
	}{
		"bodylimit":     {"the limit of one request is that of the spec", func(s *spec) { s.MaxRequestBodySize = 1000 }, toolhive.Objects{}, `{"max_bytes":1000}`},
		"ratelimit":     {"they are counted encrypted, too", encrypted, toolhive.Objects{}, `"redis_tls":{"insecureSkipVerify":true}`},
		"auth":          {"whose tokens are good", as.change, as.named, `"embedded_auth_server_issuer":"https://as"`},
		"upstreamswap":  {"the server gets that of the users' own provider", as.change, as.named, `{"config":{"provider_name":"idp-1"}}`},
		"authorization": {"a claim of the authorization server's own tokens says little of who somebody is", as.change, as.named, `"primary_upstream_provider":"idp-1"`},
	} {
		got := ""
		for _, m := range make1(t, server(c.change), c.named).Config.Middlewares {
			if m.Type == kind {
				data, err := json.Marshal(m.Parameters)
				if err != nil {
					t.Fatal(err)
				}
				got = string(data)
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s: %q, want %s in it", kind, c.why, got, c.want)
		}
	}
}
