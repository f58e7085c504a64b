package api_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type object = map[string]any

// legacy are objects that the peer's CRD took and that ours refuses to be new, by name.
var legacy = map[string]object{
	"mcpserver":                      {"image": "i"},
	"old-proxy":                      {"image": "i"},
	"old.dotted":                     {"image": "i"},
	"old-" + strings.Repeat("x", 50): {"image": "i"},
	"no-quantity":                    {"image": "i", "resources": object{"limits": object{"cpu": "lots"}}},
	"no-image":                       {"image": ""},
	"no-spec":                        nil,
}

var served = []string{"v1alpha1", "v1beta1"}

// with is a spec that is accepted, and one field besides.
func with(field string, value any) object {
	return object{"image": "example.org/server:1", field: value}
}

func list(items ...any) []any { return items }

func TestNames(t *testing.T) {
	cases := map[string]struct {
		why  string
		name string
		want string // of the message; empty: accepted
	}{
		"Ordinary":      {why: "what manifests have", name: "fetch-2"},
		"DigitFirst":    {why: "mcp- comes before it, so Services may have it", name: "7zip"},
		"FiftyLong":     {why: "mcp-NAME-headless has 63 then", name: strings.Repeat("a", 50)},
		"TooLong":       {why: "its Service could not be made", name: strings.Repeat("a", 51), want: "at most 50 characters"},
		"Dotted":        {why: "Services have no dots", name: "my.server", want: "without '.'"},
		"LikeAProxy":    {why: "mcp-foo-proxy is foo's Service for clients", name: "foo-proxy", want: "must not end in -proxy or -headless"},
		"LikeAHeadless": {why: "mcp-foo-headless is foo's Service too", name: "foo-headless", want: "must not end in -proxy or -headless"},
		"ProxyInside":   {why: "nothing of foo is called so", name: "foo-proxy-2"},
		"Everybody":     {why: "app=mcpserver is on the proxies of all servers", name: "mcpserver", want: "must not be mcpserver"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tryCreate(t, tc.why, tc.name, object{"image": "i"}, tc.want) })
	}
}

func TestSpecRules(t *testing.T) {
	env := func(name, value string) []any { return list(object{"name": name, "value": value}) }
	volume := func(name, host, mount string) []any {
		return list(object{"name": name, "hostPath": host, "mountPath": mount})
	}
	quantity := func(kind, resource, value string) object {
		return with("resources", object{kind: object{resource: value}})
	}
	cases := map[string]struct {
		why  string
		spec object
		want string // of the message; empty: accepted
	}{
		"Minimal":            {why: "an image is enough", spec: object{"image": "i"}},
		"NoSpec":             {why: "nothing is asked for", spec: nil, want: "spec is required: name an image"},
		"NoImage":            {why: "nothing to run", spec: object{}, want: "spec.image: Required value"},
		"EmptyImage":         {why: "the same", spec: object{"image": ""}, want: "spec.image"},
		"UnknownTransport":   {why: "nobody speaks it", spec: with("transport", "carrier-pigeon"), want: "spec.transport: Unsupported value"},
		"UnknownProxyMode":   {why: "the same", spec: with("proxyMode", "stdio"), want: "spec.proxyMode: Unsupported value"},
		"UnknownAffinity":    {why: "Services know two", spec: with("sessionAffinity", "Cookie"), want: "spec.sessionAffinity: Unsupported value"},
		"ProxyPortZero":      {why: "0 means any port to a listener", spec: with("proxyPort", int64(0)), want: "spec.proxyPort"},
		"ProxyPortTooHigh":   {why: "16 bits", spec: with("proxyPort", int64(65536)), want: "spec.proxyPort"},
		"MCPPortZero":        {why: "as above", spec: with("mcpPort", int64(0)), want: "spec.mcpPort"},
		"MCPPortTooHigh":     {why: "as above", spec: with("mcpPort", int64(65536)), want: "spec.mcpPort"},
		"PortsAtTheEnd":      {why: "the last ones are ports too", spec: object{"image": "i", "proxyPort": int64(65535), "mcpPort": int64(1)}},
		"NegativeReplicas":   {why: "0 stops; less means nothing", spec: with("replicas", int64(-1)), want: "spec.replicas"},
		"NegativeBackends":   {why: "the same", spec: with("backendReplicas", int64(-1)), want: "spec.backendReplicas"},
		"ZeroReplicas":       {why: "a stopped server", spec: with("replicas", int64(0))},
		"Quantity":           {why: "each form", spec: with("resources", object{"limits": object{"cpu": "1.5", "memory": "1e9"}, "requests": object{"cpu": "500m", "memory": "64Mi"}})},
		"EmptyQuantity":      {why: "the peer takes it for none", spec: quantity("limits", "cpu", "")},
		"CPUNoQuantity":      {why: "the peer panics on it", spec: quantity("limits", "cpu", "lots"), want: "cpu must be a quantity such as 500m or 2"},
		"MemoryNoQuantity":   {why: "64MB is a frequent mistake", spec: quantity("requests", "memory", "64MB"), want: "memory must be a quantity such as 64Mi or 1Gi"},
		"NegativeQuantity":   {why: "pods with it are refused, where nobody looks", spec: quantity("requests", "cpu", "-1"), want: "cpu must be a quantity"},
		"RequestsOverLimits": {why: "the same", spec: with("resources", object{"limits": object{"cpu": "900m"}, "requests": object{"cpu": "1"}}), want: "requests.cpu must not exceed limits.cpu"},
		"MemoryOverLimit":    {why: "the same", spec: with("resources", object{"limits": object{"memory": "1Gi"}, "requests": object{"memory": "1025Mi"}}), want: "requests.memory must not exceed limits.memory"},
		"EnvWithoutValue":    {why: "an empty value is a value", spec: with("env", env("A", ""))},
		"EnvWithoutName":     {why: "a pod with it is refused", spec: with("env", env("", "x")), want: "must have a character, and neither '=' nor a line break"},
		"EnvNameWithEquals":  {why: "it would set another variable", spec: with("env", env("A=B", "x")), want: "must have a character, and neither '=' nor a line break"},
		"EnvNameTwoLines":    {why: "as above", spec: with("env", env("A\nB", "x")), want: "must have a character, and neither '=' nor a line break"},
		"EnvValueTwoLines":   {why: "the peer refuses it later", spec: with("env", env("A", "x\ny")), want: "must be one line"},
		"EnvValueReturn":     {why: "the same", spec: with("env", env("A", "x\ry")), want: "must be one line"},
		"EnvValueLong":       {why: "certificates and JSON are handed over so", spec: with("env", env("A", strings.Repeat("x", 64<<10)))},
		"EnvMany":            {why: "more than any manifest has must not exceed the cost limits", spec: with("env", many(256))},
		"EnvTwice":           {why: "one of them would be lost", spec: with("env", append(env("A", "1"), env("A", "2")...)), want: "Duplicate value"},
		"ProxyEnvTwoLines":   {why: "this one goes to the Deployment as it is, which can hold it", spec: with("resourceOverrides", object{"proxyDeployment": object{"env": env("A", "x\ny")}})},
		"ProxyEnvNoName":     {why: "a pod with it is refused", spec: with("resourceOverrides", object{"proxyDeployment": object{"env": env("", "x")}}), want: "must have a character"},
		"Volume":             {why: "what manifests have", spec: with("volumes", volume("data", "/srv/data", "/data"))},
		"VolumeNotAbsolute":  {why: "of which directory?", spec: with("volumes", volume("data", "srv", "/data")), want: "hostPath must be an absolute path"},
		"VolumeColon":        {why: "no mount has it", spec: with("volumes", volume("data", "/srv", "/data:ro")), want: "mountPath must be an absolute path"},
		"VolumeName":         {why: "it is the name of a volume of a pod", spec: with("volumes", volume("My_Data", "/srv", "/data")), want: "the name of a volume"},
		"Secret":             {why: "the key is the variable", spec: with("secrets", list(object{"name": "s", "key": "TOKEN"}))},
		"SecretTwoKeys":      {why: "ToolHive takes them since v0.63.0", spec: with("secrets", list(object{"name": "s", "key": "A"}, object{"name": "s", "key": "B"}))},
		"SecretKeyTwice":     {why: "one variable, twice", spec: with("secrets", list(object{"name": "s", "key": "A"}, object{"name": "s", "key": "A"})), want: "spec.secrets[1]: Duplicate value"},
		"SecretWithoutName":  {why: "which?", spec: with("secrets", list(object{"name": "", "key": "k"})), want: "spec.secrets[0].name"},
		"SecretWithoutKey":   {why: "which?", spec: with("secrets", list(object{"name": "s", "key": ""})), want: "spec.secrets[0].key"},
		"SecretTarget":       {why: "as with env", spec: with("secrets", list(object{"name": "s", "key": "k", "targetEnvName": "A=B"})), want: "targetEnvName is the name of an environment variable"},
		"Redis":              {why: "complete", spec: with("sessionStorage", object{"provider": "redis", "address": "r:6379"})},
		"RedisNoAddress":     {why: "where?", spec: with("sessionStorage", object{"provider": "redis"}), want: "address is required"},
		"TwoAuthorizations":  {why: "which one decides?", spec: object{"image": "i", "authzConfig": object{}, "authzConfigRef": object{"name": "a"}}, want: "exclude each other: keep one"},
		"RateLimitNoRedis":   {why: "counts must be shared", spec: with("rateLimiting", object{"shared": object{"maxTokens": int64(1), "refillPeriod": "1s"}}), want: "needs spec.sessionStorage with provider redis"},
		"PodTemplateIsText":  {why: "an object is expected", spec: with("podTemplateSpec", "containers"), want: "spec.podTemplateSpec"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tryCreate(t, tc.why, "a-server", tc.spec, tc.want) })
	}
}

func many(n int) []any {
	vars := make([]any, n)
	for i := range vars {
		vars[i] = object{"name": strings.Repeat("A", i+1), "value": strings.Repeat("x", 1<<10)}
	}
	return vars
}

// tryCreate tells whether a server is accepted, in both versions.
// A server that is open by a typing mistake is worse than one that is refused. kubectl asks for strict validation.
func TestMistypedFieldsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ why, field string }{
		"Authz":       {why: "it would run without authorization", field: "authzconfig"},
		"OIDC":        {why: "it would run without authentication", field: "oidcConfigref"},
		"OldPort":     {why: "of an older ToolHive: the server would listen elsewhere", field: "targetPort"},
		"PodTemplate": {why: "the pods would be others", field: "podTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			c := client.WithFieldValidation(ruled(t), "Strict")
			for _, version := range served {
				err := c.Create(t.Context(), server(version, "mistyped", with(tc.field, object{"name": "x"})), client.DryRunAll)
				if want := `unknown field "spec.` + tc.field + `"`; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %s answered %v, want it to say %q", tc.why, version, err, want)
				}
			}
		})
	}
}

func tryCreate(t *testing.T, why, name string, spec object, want string) {
	t.Helper()
	c := ruled(t)
	for _, version := range served {
		err := c.Create(t.Context(), server(version, name, spec), client.DryRunAll)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %s refused it: %v", why, version, err)
		case want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %s answered %v, want it to say %q", why, version, err, want)
		}
	}
}
