package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/config"
)

const owner = `"owner":{"apiVersion":"toolhive.stacklok.dev/v1beta1","kind":"MCPServer","name":"fetch","uid":"u"}`

// write makes a file of the text and answers its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runconfig.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		why, file, generation string // the file without its name and owner
		want                  func(*config.Loaded)
	}{
		"the least, stdio": {"defaults", `"transport":"stdio"`, "", func(*config.Loaded) {}},
		"the least, sse": {"the proxy speaks what the server does", `"transport":"sse","proxy_mode":"streamable-http"`, "", func(l *config.Loaded) {
			l.Run.Transport, l.Run.ProxyMode, l.Run.TargetPort = "sse", "sse", 8080
		}},
		"unknown fields": {"a newer manager has written it", `"transport":"stdio","NAME":"fetch","color":"red","animal":1`, "", func(l *config.Loaded) {
			l.Warning = l.Path + ": animal, color: this proxy does not know it: use the image of the manager's release"
		}},
		"session TTL": {"a duration in Go's words", `"transport":"stdio","session_ttl":"90m"`, "", func(l *config.Loaded) { l.SessionTTL, l.Run.SessionTTL = 90*time.Minute, "90m" }},
		"limits of a request": {"they are those of the spec", `"transport":"stdio","max_request_body_size":1024,"proxy_read_timeout":"5s"`, "", func(l *config.Loaded) {
			l.ReadTime, l.Run.MaxRequestBodySize, l.Run.ProxyReadTimeout = 5*time.Second, 1024, "5s"
		}},
		"the pod is older": {"the file has changed under it", `"transport":"stdio","mcpserver_generation":5`, "3", func(l *config.Loaded) { l.Stale, l.Run.MCPServerGeneration = true, 3 }},
		"the pod is newer": {"what changed is not in the file", `"transport":"stdio","mcpserver_generation":5`, "7", func(l *config.Loaded) { l.Run.MCPServerGeneration = 7 }},
		"the pod's generation cannot be read": {"the file's is good enough", `"transport":"stdio","mcpserver_generation":5`, "x", func(l *config.Loaded) {
			l.Warning, l.Run.MCPServerGeneration = `THV_MCPSERVER_GENERATION="x" is not a generation: using 5, the one of the file`, 5
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, `{"name":"fetch",`+owner+`,`+test.file+`}`)
			got, err := config.Load([]string{filepath.Join(t.TempDir(), "none"), path, "never read"}, test.generation)
			if err != nil {
				t.Fatal(err)
			}
			want := &config.Loaded{Path: path, Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080,
				Owner: &runconfig.Owner{APIVersion: "toolhive.stacklok.dev/v1beta1", Kind: "MCPServer", Name: "fetch", UID: "u"}}}
			test.want(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestBadFileIsNamedWithFieldAndRemedy(t *testing.T) {
	const remedy = ": correct it where the file is made"
	for name, test := range map[string]struct {
		file string
		want []string // without the path
	}{
		"empty":         {"", []string{"line 1: not JSON: unexpected end of JSON input"}},
		"cut off":       {"{\n\"name\": \"fetch\",\n", []string{"line 3: not JSON: unexpected end of JSON input"}},
		"a typing slip": {"{\n\"name\": fetch}", []string{"line 2: not JSON: invalid character 'e' in literal false (expecting 'a')"}},
		"two values":    {"{}{}", []string{"line 1: not JSON: invalid character '{' after top-level value"}},
		"another type":  {`{"scaling_config":{"backend_replicas":"3"}}`, []string{"scaling_config.backend_replicas: is a JSON string, must fit int32" + remedy}},
		"protection": {`{"name":"fetch","transport":"stdio","middleware_configs":[{"type":"x"}],"audit":{"a":1},"color":"red",` + owner + `}`,
			[]string{"audit, middleware_configs: this proxy does not know it: use the image of the manager's release"}},
		"a list": {`[]`, []string{"the whole file: is a JSON array, must fit runconfig.RunConfig" + remedy}},
		"null": {`null`, []string{
			`name: is "", must be the name of the MCPServer` + remedy, `transport: is "", must be stdio, sse or streamable-http` + remedy,
			"owner: must have apiVersion, kind, name and uid: the operator of this project writes them"}},
		"bad values": {`{"name":"fetch","transport":"stdio","proxy_mode":"http","port":70000,"session_ttl":"2",` + owner + `}`, []string{
			`proxy_mode: is "http", must be sse or streamable-http` + remedy, "port: is 70000, must be a port, 1 to 65535" + remedy,
			`session_ttl: is "2", must be a duration such as 2h` + remedy}},
		"bad body":   {`{"name":"fetch","transport":"stdio","max_request_body_size":-1,` + owner + `}`, []string{"max_request_body_size: is -1, must be a number of bytes" + remedy}},
		"bad time":   {`{"name":"fetch","transport":"stdio","proxy_read_timeout":"5",` + owner + `}`, []string{`proxy_read_timeout: is "5", must be a duration such as 30s` + remedy}},
		"bad target": {`{"name":"fetch","transport":"sse","target_port":-1,` + owner + `}`, []string{"target_port: is -1, must be a port, 1 to 65535" + remedy}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.file)
			_, err := config.Load([]string{path}, "")
			if err == nil {
				t.Fatal("no error")
			}
			for i := range test.want {
				test.want[i] = path + ": " + test.want[i]
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissingFileListsWhereItWasLookedFor(t *testing.T) {
	_, err := config.Load([]string{"/no/a/runconfig.json", "/no/b/runconfig.json"}, "")
	want := "no run configuration: looked for /no/a/runconfig.json, /no/b/runconfig.json: mount the ConfigMap NAME-runconfig of the MCPServer at /no/a"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestUnreadableFileIsNotPassedOver(t *testing.T) {
	dir := t.TempDir() // a directory can be opened, not read
	if _, err := config.Load([]string{dir, write(t, "{}")}, ""); err == nil || !strings.Contains(err.Error(), "read the run configuration") {
		t.Errorf("error %v, want that the first file cannot be read", err)
	}
}
