package mcpserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
)

func TestSpecProblems(t *testing.T) {
	type spec = v1beta1.MCPServerSpec
	invalid := func(text string) []*problem { return []*problem{{"InvalidSpec", text}} }
	badTemplate := func(text string) []*problem {
		return []*problem{{"InvalidPodTemplateSpec", "spec.podTemplateSpec is not a pod template: " + text}}
	}
	for name, test := range map[string]struct {
		why    string
		change func(*spec)
		want   []*problem
	}{
		"none":           {"the least spec can be run", nil, nil},
		"quantity":       {"it must not be a panic", func(s *spec) { s.Resources.Limits.CPU = "abc" }, invalid(`spec.resources.limits.cpu is "abc", which is not a quantity: write one such as 500m or 64Mi`)},
		"negative":       {"no pod has less than nothing", func(s *spec) { s.Resources.Requests.Memory = "-1" }, invalid(`spec.resources.requests.memory is "-1", which is not a quantity: write one such as 500m or 64Mi`)},
		"request, limit": {"the API server would refuse the backend's pods", func(s *spec) { s.Resources.Limits.CPU, s.Resources.Requests.CPU = "1", "1500m" }, invalid("spec.resources.requests.cpu is 1500m, more than the limit of 1: lower it")},
		"no image":       {"an older CRD lets it pass", func(s *spec) { s.Image = "" }, invalid(`spec.image is "": write the name of an image`)},
		"image, flag":    {"the proxy would read it as a flag of its own", func(s *spec) { s.Image = "--debug" }, invalid(`spec.image is "--debug": write the name of an image`)},
		"variable":       {"it would be two variables in runconfig.json's readers", func(s *spec) { s.Env = []v1beta1.EnvVar{{Name: "A", Value: "1\nB=2"}} }, invalid("spec.env A has a line break in its value: take it from a Secret (spec.secrets)")},
		"variable twice": {"the API server would refuse the backend's pods",
			func(s *spec) {
				s.Env = []v1beta1.EnvVar{{Name: "A"}}
				s.Secrets = []v1beta1.SecretRef{{Name: "s", Key: "A"}}
			},
			invalid(`spec.secrets "A" is there twice: the variables of spec.env and spec.secrets are those of one container`)},
		"host path": {"it would leave what an administrator allows", func(s *spec) {
			s.Volumes = []v1beta1.Volume{{Name: "v", HostPath: "/srv/../etc", MountPath: "/a"}}
		}, invalid("spec.volumes v: hostPath is \"/srv/../etc\": write an absolute path that does not go up"),
		},
		"template, field": {"it would be lost without a word", template(`{"spec":{"containrs":[]}}`), badTemplate(`unknown field "spec.containrs"`)},
		"template, case":  {"the API server tells cases apart", template(`{"spec":{"NodeSelector":{}}}`), badTemplate(`unknown field "spec.NodeSelector"`)},
		"template, type":  {"a text is no list", template(`{"spec":{"containers":"mcp"}}`), badTemplate("json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container")},
		"template, name":  {"a container without a name is nobody's", template(`{"spec":{"containers":[{"image":"a"}]}}`), badTemplate(`container 1 needs a name of its own; "mcp" is the MCP server's`)},
		"body, negative":  {"nobody meant it", func(s *spec) { s.MaxRequestBodySize = -1 }, invalid("spec.maxRequestBodySize is -1: write a number of bytes")},
		"body, large": {"the memory of our proxy is bounded, and a limit that is cut would be a lie", func(s *spec) { s.MaxRequestBodySize = 25165825 },
			invalid("spec.maxRequestBodySize is 25165825, and this proxy holds requests of at most 25165824 bytes: write that or less, or let ToolHive's proxy serve")},
		"body, the largest": {"our proxy takes it", func(s *spec) { s.MaxRequestBodySize, s.ProxyReadTimeout = 25165824, "1m30s" }, nil},
		"read, no time":     {"no proxy would start", func(s *spec) { s.ProxyReadTimeout = "soon" }, invalid(`spec.proxyReadTimeout is "soon": write a time such as 1m`)},
		"proxy's variable": {"pages of any host would be let in, and nobody would hear of it", func(s *spec) {
			s.ResourceOverrides = &v1beta1.ResourceOverrides{ProxyDeployment: &v1beta1.ProxyDeploymentOverrides{
				Env: []v1beta1.EnvVar{{Name: "TOOLHIVE_PROXY_ALLOWED_HOST", Value: "mcp.example.org"}, {Name: "TOOLHIVE_PROXY_ALLOWED_ORIGINS", Value: "x"}, {Name: "OTHER"}}}}
		}, invalid("spec.resourceOverrides.proxyDeployment.env has TOOLHIVE_PROXY_ALLOWED_HOST, which this proxy does not read: " +
			"correct the name (TOOLHIVE_PROXY_ALLOWED_HOSTS, TOOLHIVE_PROXY_ALLOWED_ORIGINS, TOOLHIVE_PROXY_REQUEST_TIMEOUT), or remove it")},
		"protection": {"nobody would give it", func(s *spec) {
			s.OIDCConfigRef, s.RateLimiting, s.Audit = text(`{}`), text(`{}`), text(`{"enabled":true}`)
		}, []*problem{{"NotEnforced", "this proxy does not enforce spec.oidcConfigRef, spec.rateLimiting, spec.audit, so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation phasegate.dev/accept-not-enforced: \"oidcConfigRef,rateLimiting,audit\""}}},
		"all at once": {"a person corrects all in one edit", func(s *spec) {
			template(`{"a":1}`)(s)
			s.AuthServerRef, s.Image, s.ServiceAccount = text(`{}`), "a b", new("A")
		}, []*problem{
			{"NotEnforced", "this proxy does not enforce spec.authServerRef, so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation phasegate.dev/accept-not-enforced: \"authServerRef\""},
			{"InvalidPodTemplateSpec", `spec.podTemplateSpec is not a pod template: unknown field "a"`},
			{"InvalidSpec", `spec.image is "a b": write the name of an image; spec.serviceAccount is "A", which no ServiceAccount is called: ` +
				`a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character ` +
				`(e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, specProblems(Phasegate, fetch(test.change))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
	named := fetch(nil)
	named.Name = "mcpserver"
	want := invalid(`metadata.name is "mcpserver", which is the label of every proxy: make a server of another name, and delete this one`)
	if diff := cmp.Diff(want, specProblems(Phasegate, named)); diff != "" {
		t.Errorf("its backend would select all proxies (-want +got):\n%s", diff)
	}
}

// What asks for protection is never run as if it had it: the server is not run, unless
// the object says for each field that it accepts this.
func TestNoServerIsOpenThatAsksForProtection(t *testing.T) {
	fields := protection(Phasegate, fetch(all))
	for i, field := range fields {
		others := strings.Join(slices.Delete(slices.Clone(fields), i, i+1), ",")
		for accepts, want := range map[string]bool{others: true, "true, image," + others: true, others + "," + field: false, others + ", spec." + field + " ": false} {
			srv := fetch(all)
			srv.Annotations = map[string]string{"phasegate.dev/accept-not-enforced": accepts}
			problems, what := specProblems(Phasegate, srv), "spec."+field+", so the server"
			refused := len(problems) > 0 && problems[0].Reason == v1beta1.ReasonNotEnforced && strings.Contains(problems[0].Message, what)
			told := problemsByCondition(Phasegate, srv)[v1beta1.ConditionSpecEnforced]
			if refused != want || told == nil || !strings.Contains(told.Message, "spec."+field) {
				t.Errorf("accepting %q, refused is %v, want %v; problems %v, SpecEnforced %v", accepts, refused, want, problems, told)
			}
		}
	}
}

// Our CRD drops what it does not know, with an error or a warning at apply; one of a newer ToolHive keeps it.
func TestUnreadFieldsAreNamed(t *testing.T) {
	read := func(spec string) *server {
		srv := fetch(nil)
		if err := json.Unmarshal([]byte(spec), &srv.Spec); err != nil {
			t.Fatal(err)
		}
		return srv
	}
	refused := func(what, fields string) []*problem {
		return []*problem{{"NotEnforced", "this proxy does not enforce " + what + ", so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation phasegate.dev/accept-not-enforced: \"" + fields + "\""}}
	}
	const unknown = " (an unknown field: mistyped, or of a newer ToolHive)"
	for name, test := range map[string]struct {
		why, spec string
		problems  []*problem
		condition *problem
	}{
		"mistyped":   {"a server that is open by a typing mistake", `{"image":"a","authzconfig":{"type":"inline"}}`, refused("spec.authzconfig"+unknown, "authzconfig"), nil},
		"in a field": {"its parent is known", `{"image":"a","sessionStorage":{"provider":"memory","authMode":"iam"}}`, refused("spec.sessionStorage.authMode"+unknown, "sessionStorage.authMode"), nil},
		"no protection": {"nobody is less safe: the server runs, and it is said", `{"image":"a","port":9095,"targetPort":3000}`, nil,
			&problem{"NotEnforced", "kept for other controllers, but without effect on this proxy: spec.port" + unknown + ", spec.targetPort" + unknown}},
		"known":      {"nothing to say", `{"image":"a","mcpPort":3000}`, nil, nil},
		"any inside": {"these are read by others, strictly", `{"image":"a","groupRef":{"name":"g","x":1},"podTemplateSpec":{"spec":{}}}`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			srv := read(test.spec)
			if diff := cmp.Diff(test.problems, specProblems(Phasegate, srv)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
			want := test.condition
			if len(test.problems) > 0 {
				want = test.problems[0]
			}
			for _, proxy := range Flavours { // neither proxy can know it
				if diff := cmp.Diff(want, problemsByCondition(proxy, srv)[v1beta1.ConditionSpecEnforced]); diff != "" {
					t.Errorf("%s, proxy %s (-want +got):\n%s", test.why, proxy, diff)
				}
			}
		})
	}
}

func TestProblemsByCondition(t *testing.T) {
	const at, strategy, last = v1beta1.AnnotationRestartedAt, v1beta1.AnnotationRestartStrategy, v1beta1.AnnotationLastProcessedRestart
	for name, test := range map[string]struct {
		why         string
		annotations map[string]string
		change      func(*v1beta1.MCPServerSpec)
		want        map[string]*problem
	}{
		"none":        {why: "there is no condition without a cause", annotations: map[string]string{strategy: "unknown"}},
		"a request":   {why: "fractions are RFC 3339, too", annotations: map[string]string{at: "2026-03-04T12:00:00.5+01:00", strategy: "immediate"}},
		"processed":   {why: "what was acted on was understood", annotations: map[string]string{at: "2026-03-04T12:00:00Z", strategy: "unknown", last: "2026-03-04T12:00:00Z"}},
		"no time":     {why: "the peer only logs it", annotations: map[string]string{at: "now"}, want: map[string]*problem{"RestartRequestValid": {"InvalidRestartTimestamp", `annotation mcpserver.toolhive.stacklok.dev/restarted-at is "now", which is not a time such as 2006-01-02T15:04:05Z: nothing is restarted`}}},
		"no strategy": {why: "the peer takes it for rolling", annotations: map[string]string{at: "2026-03-04T12:00:00Z", strategy: "Rolling"}, want: map[string]*problem{"RestartRequestValid": {"InvalidRestartStrategy", `annotation mcpserver.toolhive.stacklok.dev/restart-strategy is "Rolling", neither rolling nor immediate: nothing is restarted`}}},
		"without effect": {why: "the server runs, and it is told", annotations: map[string]string{v1beta1.AnnotationAcceptNotEnforced: "authzConfig"}, change: func(s *v1beta1.MCPServerSpec) {
			s.TelemetryConfigRef, s.AuthzConfig = text(`{}`), text(`{}`)
		}, want: map[string]*problem{"SpecEnforced": {"NotEnforced", "kept for other controllers, but without effect on this proxy: spec.authzConfig, spec.telemetryConfigRef"}}},
		"accepted and more": {why: "what was accepted stays so in the annotation that is proposed", annotations: map[string]string{v1beta1.AnnotationAcceptNotEnforced: "toolConfigRef"}, change: func(s *v1beta1.MCPServerSpec) {
			s.ToolConfigRef, s.AuthzConfig = &v1beta1.LocalRef{Name: "a"}, text(`{}`)
		}, want: map[string]*problem{"SpecEnforced": {"NotEnforced", "this proxy does not enforce spec.authzConfig, so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation phasegate.dev/accept-not-enforced: \"toolConfigRef,authzConfig\""}}},
		"accepted, mistyped": {why: "the server does not run, and the message has the right name", annotations: map[string]string{"phasegate.dev/acept-not-enforced": "authzConfig"}, change: func(s *v1beta1.MCPServerSpec) {
			s.AuthzConfig = text(`{}`)
		}, want: map[string]*problem{"SpecEnforced": {"NotEnforced", "this proxy does not enforce spec.authzConfig, so the server is not run: remove the field, run this server with ToolHive's operator, or accept that nothing enforces it with the annotation phasegate.dev/accept-not-enforced: \"authzConfig\""}}},
		"audit, disabled": {why: "it asks for nothing", change: func(s *v1beta1.MCPServerSpec) { s.Audit = text(`{"enabled":false}`) }},
		"group":           {why: "a group asks nothing of the proxy", change: func(s *v1beta1.MCPServerSpec) { s.GroupRef = text(`{}`) }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := fetch(test.change)
			srv.Annotations = test.annotations
			got := map[string]*problem{}
			for condition, p := range problemsByCondition(Phasegate, srv) {
				if p == nil {
					continue
				}
				got[condition] = p
			}
			if test.want == nil {
				test.want = map[string]*problem{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}
