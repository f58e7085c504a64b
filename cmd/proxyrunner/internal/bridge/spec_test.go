package bridge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/phasegate/phasegate/cmd/proxyrunner/internal/bridge"
)

// answering answers every call with "done".
func answering(s *script) {
	for m := range s.heard {
		if m.ID != nil {
			s.answer(m, "done")
		}
	}
}

func TestMessagesOfClientsAreChecked(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	go answering(s)
	one := join(t, url)
	const invalid, parse = `{"code":-32600,"id":null}`, `{"code":-32700,"id":null}`
	for name, test := range map[string]struct {
		why, body string
		status    int
		want      string // the code and id of an error, or the id of an answer
	}{
		"number":            {"an id is a number", `{"jsonrpc":"2.0","id":1,"method":"x"}`, 200, `1`},
		"text":              {"or a string", `{"jsonrpc":"2.0","id":"1","method":"x"}`, 200, `"1"`},
		"great number":      {"it comes back as it was, also beyond 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"x"}`, 200, `9007199254740993`},
		"empty text":        {"it is a string", `{"jsonrpc":"2.0","id":"","method":"x"}`, 200, `""`},
		"fraction":          {"it would come back as 1, which is another call's", `{"jsonrpc":"2.0","id":1.5,"method":"x"}`, 400, invalid},
		"null":              {"MCP forbids it, and it is no notification", `{"jsonrpc":"2.0","id":null,"method":"x"}`, 400, invalid},
		"true":              {"it is neither", `{"jsonrpc":"2.0","id":true,"method":"x"}`, 400, invalid},
		"object":            {"it is neither", `{"jsonrpc":"2.0","id":{},"method":"x"}`, 400, invalid},
		"neither":           {"it answers nothing", `{"jsonrpc":"2.0","id":1}`, 400, invalid},
		"both":              {"it says yes and no", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}`, 400, invalid},
		"result for null":   {"what is answered?", `{"jsonrpc":"2.0","id":null,"result":{}}`, 400, invalid},
		"result for none":   {"what is answered?", `{"jsonrpc":"2.0","result":{}}`, 400, invalid},
		"error for null":    {"the id could not be read: that is how to say it", `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, 202, ``},
		"method is no text": {"it is no request", `{"jsonrpc":"2.0","id":1,"method":1}`, 400, invalid},
		"other case":        {"names of members have one", `{"jsonrpc":"2.0","ID":1,"Method":"x"}`, 400, invalid},
		"old version":       {"JSON-RPC 1 has other rules", `{"jsonrpc":"1.0","id":1,"method":"x"}`, 400, invalid},
		"no JSON":           {"it cannot be read", `{"jsonrpc":`, 400, parse},
	} {
		t.Run(name, func(t *testing.T) {
			resp := post(test.body, one).do(t, url)
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(text) > 0 {
				var m struct {
					ID    json.RawMessage
					Error *struct{ Code int }
				}
				if err := json.Unmarshal(text, &m); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if got = string(m.ID); m.Error != nil {
					got = fmt.Sprintf(`{"code":%d,"id":%s}`, m.Error.Code, m.ID)
				}
			}
			if diff := cmp.Diff([]any{test.status, test.want}, []any{resp.StatusCode, got}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestHeadersOfClientsAreChecked(t *testing.T) {
	s, url := begin(t, bridge.Options{})
	go answering(s)
	one := join(t, url)
	const object, stream = "application/json", "text/event-stream"
	for name, test := range map[string]struct {
		why    string
		header http.Header
		status int
		kind   string
	}{
		"both":                 {"a stream can carry more", http.Header{"Accept": {object + ", " + stream}}, 200, stream},
		"no stream":            {"q=0 is no", http.Header{"Accept": {object + ", " + stream + ";q=0"}}, 200, object},
		"no stream, all":       {"what is more exact counts", http.Header{"Accept": {"*/*, " + stream + "; q=0.000"}}, 200, object},
		"no object":            {"a stream is what is left", http.Header{"Accept": {object + ";q=0, " + stream}}, 200, stream},
		"little of it":         {"q=0.1 is yes", http.Header{"Accept": {object + ", " + stream + ";q=0.1"}}, 200, stream},
		"neither":              {"there is nothing else", http.Header{"Accept": {"image/png"}}, 406, object},
		"nothing":              {"there is nothing else", http.Header{"Accept": {"*/*;q=0"}}, 406, object},
		"version":              {"the bridge speaks it", http.Header{"Mcp-Protocol-Version": {"2025-06-18"}}, 200, object},
		"two versions":         {"which one?", http.Header{"Mcp-Protocol-Version": {"2025-06-18", "2025-03-26"}}, 400, object},
		"an unknown second":    {"the first one is not all", http.Header{"Mcp-Protocol-Version": {"2025-06-18", "x"}}, 400, object},
		"two sessions":         {"whose call is it?", http.Header{"Mcp-Session-Id": {one["Mcp-Session-Id"], "x"}}, 400, object},
		"the session and none": {"it is still two", http.Header{"Mcp-Session-Id": {one["Mcp-Session-Id"], ""}}, 400, object},
	} {
		t.Run(name, func(t *testing.T) {
			r := post(tools, one).to(t, url)
			maps.Copy(r.Header, test.header)
			resp := send(t, http.DefaultClient, r)
			if diff := cmp.Diff([]any{test.status, test.kind}, []any{resp.StatusCode, resp.Header.Get("Content-Type")}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}
