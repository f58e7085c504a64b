package dashboard

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/phasegate/phasegate/test/support/harness"
)

// browser is a headless Chromium with one page, spoken to by its DevTools protocol.
// It is for one goroutine.
type browser struct {
	conn *websocket.Conn
	last int
	// asked are the URLs of all requests, complaints what stood in the console.
	asked, complaints []string
}

// chromium finds the program, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium on the PATH: install it (Debian: apt-get install chromium) to try the dashboard in a browser")
	return ""
}

// open starts a browser that can reach nothing but this machine.
func open(t *testing.T) *browser {
	t.Helper()
	profile := t.TempDir()
	harness.ProcessForTest(t, harness.Program{
		Name: "chromium", Path: chromium(t), LogDir: t.TempDir(),
		Args: []string{
			"--headless=new", "--remote-debugging-port=0", "--user-data-dir=" + profile, "--window-size=1280,1000",
			"--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank",
		},
	})
	b := &browser{}
	harness.Eventually(t, "the browser to listen", func() (err error) {
		b.conn, err = dial(t.Context(), profile)
		return err
	})
	t.Cleanup(func() { _ = b.conn.Close() })
	for _, domain := range []string{"Page", "Runtime", "Network", "Log", "Accessibility"} {
		b.call(t, domain+".enable", nil, nil)
	}
	return b
}

// dial connects to the first page; its address is in two steps from a file of the profile.
func dial(ctx context.Context, profile string) (*websocket.Conn, error) {
	text, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
	if err != nil {
		return nil, err
	}
	port, _, _ := strings.Cut(string(text), "\n")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/json/list", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var targets []struct {
		Type string `json:"type"`
		URL  string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&targets); err != nil {
		return nil, err
	}
	for _, target := range targets {
		if target.Type == "page" {
			conn, _, err := websocket.DefaultDialer.DialContext(ctx, target.URL, nil)
			return conn, err
		}
	}
	return nil, fmt.Errorf("no page among %+v", targets)
}

// message is an answer, or an event.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// call gives a command and reads up to its answer; out may be nil.
func (b *browser) call(t *testing.T, method string, params, out any) {
	t.Helper()
	b.last++
	if err := b.conn.WriteJSON(map[string]any{"id": b.last, "method": method, "params": params}); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		var m message
		if err := b.conn.ReadJSON(&m); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		switch {
		case m.ID == 0:
			b.note(t, m)
		case m.Error != nil:
			t.Fatalf("%s: %s", method, m.Error.Message)
		case out == nil:
			return
		default:
			if err := json.Unmarshal(m.Result, out); err != nil {
				t.Fatalf("%s: %v in %s", method, err, m.Result)
			}
			return
		}
	}
}

// note keeps what the page asked for, and what was wrong with it.
func (b *browser) note(t *testing.T, m message) {
	t.Helper()
	var p struct {
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	switch m.Method {
	case "Network.requestWillBeSent":
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		b.asked = append(b.asked, p.Request.URL)
	case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
		b.complaints = append(b.complaints, string(m.Params))
	}
}

// evaluate answers the value of a JavaScript expression, awaited if it is a promise.
func (b *browser) evaluate(t *testing.T, expression string, out any) {
	t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.call(t, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		t.Fatalf("%.200s: %s", expression, answer.ExceptionDetails)
	}
	if out != nil && answer.Result.Value != nil {
		if err := json.Unmarshal(answer.Result.Value, out); err != nil {
			t.Fatal(err)
		}
	}
}

// text is that of an element, and empty where there is none.
func (b *browser) text(t *testing.T, selector string) (text string) {
	t.Helper()
	b.evaluate(t, fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector), &text)
	return text
}

// await waits until the text of an element has a part.
func (b *browser) await(t *testing.T, selector, part string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%q on the page", part), func() error {
		if text := b.text(t, selector); !strings.Contains(text, part) {
			return fmt.Errorf("%s says %q", selector, text)
		}
		return nil
	})
}

// picture keeps what the page looks like among what the test leaves behind (go test
// -artifacts).
func (b *browser) picture(t *testing.T, name, scheme string) {
	t.Helper()
	b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	var shot struct {
		Data string `json:"data"`
	}
	b.call(t, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name+"-"+scheme+".png"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}
