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
	whose := &runconfig.Owner{APIVersion: "toolhive.stacklok.dev/v1beta1", Kind: "MCPServer", Name: "fetch", UID: "u"}
	for name, test := range map[string]struct {
		why, file, generation string
		want                  config.Loaded
	}{
		"the least, stdio": {
			why: "defaults", file: `{"name":"fetch","transport":"stdio",` + owner + `}`,
			want: config.Loaded{Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080, Owner: whose}},
		},
		"the least, sse": {
			why: "the proxy speaks what the server does", file: `{"name":"fetch","transport":"sse","proxy_mode":"streamable-http",` + owner + `}`,
			want: config.Loaded{Run: &runconfig.RunConfig{Name: "fetch", Transport: "sse", ProxyMode: "sse", Port: 8080, TargetPort: 8080, Owner: whose}},
		},
		"unknown fields": {
			why: "a newer manager has written it", file: `{"name":"fetch","transport":"stdio","NAME":"fetch","color":"red","animal":1,` + owner + `}`,
			want: config.Loaded{Warning: "PATH: animal, color: this proxy does not know it: use the image of the manager's release", Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080, Owner: whose}},
		},
		"session TTL": {
			why: "a duration in Go's words", file: `{"name":"fetch","transport":"stdio","session_ttl":"90m",` + owner + `}`,
			want: config.Loaded{SessionTTL: 90 * time.Minute,
				Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080, SessionTTL: "90m", Owner: whose}},
		},
		"limits of a request": {
			why: "they are those of the spec", file: `{"name":"fetch","transport":"stdio","max_request_body_size":1024,"proxy_read_timeout":"5s",` + owner + `}`,
			want: config.Loaded{ReadTime: 5 * time.Second, Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080,
				MaxRequestBodySize: 1024, ProxyReadTimeout: "5s", Owner: whose}},
		},
		"the pod is older than the file": {
			why: "the file has changed under it", file: `{"name":"fetch","transport":"stdio","mcpserver_generation":5,` + owner + `}`, generation: "3",
			want: config.Loaded{Stale: true,
				Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080, MCPServerGeneration: 3, Owner: whose}},
		},
		"the pod is newer than the file": {
			why: "what changed is not in the file", file: `{"name":"fetch","transport":"stdio","mcpserver_generation":5,` + owner + `}`, generation: "7",
			want: config.Loaded{
				Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080, MCPServerGeneration: 7, Owner: whose}},
		},
		"the pod's generation cannot be read": {
			why: "the file's is good enough", file: `{"name":"fetch","transport":"stdio","mcpserver_generation":5,` + owner + `}`, generation: "x",
			want: config.Loaded{Warning: `THV_MCPSERVER_GENERATION="x" is not a generation: using 5, the one of the file`,
				Run: &runconfig.RunConfig{Name: "fetch", Transport: "stdio", ProxyMode: "streamable-http", Port: 8080, MCPServerGeneration: 5, Owner: whose}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.file)
			got, err := config.Load([]string{filepath.Join(t.TempDir(), "none"), path, "never read"}, test.generation)
			if err != nil {
				t.Fatal(err)
			}
			test.want.Path, test.want.Warning = path, strings.ReplaceAll(test.want.Warning, "PATH", path)
			if diff := cmp.Diff(&test.want, got); diff != "" {
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
