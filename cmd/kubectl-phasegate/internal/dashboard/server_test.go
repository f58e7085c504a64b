package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	migrationv1 "github.com/phasegate/phasegate/api/migration/v1"
	"github.com/phasegate/phasegate/api/phasegate/v1alpha1"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/dashboard"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/live"
	"github.com/phasegate/phasegate/cmd/kubectl-phasegate/internal/statusview"
	"github.com/phasegate/phasegate/controllers/catalog"
	"github.com/phasegate/phasegate/controllers/generic"
	"github.com/phasegate/phasegate/controllers/runner/machinestate"
	"github.com/phasegate/phasegate/fsm"
	"github.com/phasegate/phasegate/fsm/fsmtest"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func machine(t *testing.T) *fsm.Machine {
	t.Helper()
	return fsmtest.Machine(t, "../../../../phases/datastore-migration.yaml", catalog.BindingsOf("datastore-migration"))
}

// hostile is what each text of a migration is that somebody else can choose.
const hostile = `<img src=x onerror="alert(1)">&quot;'</script>`

// under is a migration in a phase.
func under(phase, text string) live.Object {
	since, locked := metav1.NewMicroTime(noon.Add(-90*time.Second)), metav1.NewTime(noon.Add(-2*time.Second))
	return asObject(text, &migrationv1.DatastoreMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "v1-to-v3"},
		Status: migrationv1.DatastoreMigrationStatus{
			Phase: phase, Message: text, DatastoreLockedAt: &locked,
			Conflicts: []migrationv1.Conflict{{Kind: "IPPool", Name: text, Fields: []string{text}}},
			Progress:  &migrationv1.Progress{Total: 200, Migrated: 50, TotalTypes: 21, CompletedTypes: 3, TypeDetails: []migrationv1.TypeProgress{{Kind: "IPPool", Migrated: 7}}},
			Machine: v1alpha1.MachineStatus{
				Phase: phase, Step: text, EnteredAt: &since, Held: v1alpha1.Held("sideDoor", "v1Lock"), OnDelete: &v1alpha1.DeletionStatus{Mode: v1alpha1.DeletionHold, Message: text},
				Blocked: []v1alpha1.Blocked{{Step: "DetectConflicts", Guard: text, Value: text}},
				History: []v1alpha1.Transition{{To: "Pending", At: since}, {From: "Pending", To: phase, At: since, Reason: "ReadyToCutOver", Message: text}},
			},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Migrating", Message: text}},
		},
	})
}

// asObject is a migration as it is read.
func asObject(note string, dm *migrationv1.DatastoreMigration) live.Object {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dm)
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(migrationv1.GroupVersion.WithKind("DatastoreMigration"))
	o, err := live.NewObject(u, machinestate.New(nil, ""))
	if err != nil {
		panic(err)
	}
	o.Note = note
	return o
}

func server(t *testing.T, look func() dashboard.Snapshot) *dashboard.Server {
	t.Helper()
	m := machine(t)
	return &dashboard.Server{Kind: "DatastoreMigration", Machine: func(live.Object) *fsm.Machine { return m }, Cluster: "https://" + hostile, Look: look, Now: func() time.Time { return noon }}
}

func well(all ...live.Object) func() dashboard.Snapshot {
	return func() dashboard.Snapshot { return dashboard.Snapshot{Objects: all, Answered: noon} }
}

// get asks the handler for a path under a name of the host.
func get(h http.Handler, method, path, host string) *http.Response {
	r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWhoIsAnswered(t *testing.T) {
	h := server(t, well()).Handler()
	cases := map[string]struct {
		why, method, path, host string
		code                    int
	}{
		"Address":     {why: "what the command prints", path: "/", host: "127.0.0.1:4711", code: 200},
		"Name":        {why: "what people type", path: "/", host: "localhost:4711", code: 200},
		"IPv6":        {why: "this machine, too", path: "/", host: "[::1]:4711", code: 200},
		"NoPort":      {why: "port 80 is not written", path: "/", host: "127.0.0.1", code: 200},
		"Rebound":     {why: "a name of somebody else that leads here: its page must not read along", path: "/", host: "evil.example:4711", code: 421},
		"Prefixed":    {why: "it only begins like ours", path: "/", host: "localhost.evil.example", code: 421},
		"Stream":      {why: "the stream is guarded like the page", path: "/events", host: "evil.example", code: 421},
		"NoHost":      {why: "no browser sends that", path: "/", host: "", code: 421},
		"OtherHost":   {why: "an address that is not this machine's own", path: "/", host: "10.0.0.1:4711", code: 421},
		"Style":       {why: "a file of the page", path: "/style.css", host: "localhost", code: 200},
		"Script":      {why: "a file of the page", path: "/live.js", host: "localhost", code: 200},
		"Template":    {why: "what the page is made of is not served", path: "/page.html", host: "localhost", code: 404},
		"Traversal":   {why: "nor anything else", path: "/../server.go", host: "localhost", code: 307},
		"ReadOnly":    {why: "nothing can be changed, so nothing may be sent", method: http.MethodPost, path: "/", host: "localhost", code: 405},
		"NoSuchThing": {why: "there is one page", path: "/admin", host: "localhost", code: 404},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			got := get(h, method, tc.path, tc.host)
			if got.StatusCode != tc.code {
				t.Errorf("%s: got %s, want %d", tc.why, got.Status, tc.code)
			}
			headers := map[string]string{}
			for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control", "Access-Control-Allow-Origin", "X-Frame-Options"} {
				headers[name] = got.Header.Get(name)
			}
			want := map[string]string{
				"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
				"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
				"Access-Control-Allow-Origin": "", "X-Frame-Options": "DENY",
			}
			if diff := cmp.Diff(want, headers); diff != "" {
				t.Errorf("every answer has these headers (-want +got):\n%s", diff)
			}
		})
	}
}

// What the page says, and that no value of a cluster becomes markup.
func TestPage(t *testing.T) {
	dead := under("Migrating", "")
	dead.Stale = &live.Stale{Why: "its manager has ended", Do: "get one running", Command: "kubectl get pods"}
	cases := map[string]struct {
		why    string
		look   func() dashboard.Snapshot
		has    []string
		hasNot []string
	}{
		"UnderWay": {why: "where it is, why it does not go on, what is held, what a deletion does, the clock of the lock", look: well(under("Migrating", "copying")),
			has: []string{`<title>Migrating: v1-to-v3 – Phasegate</title>`, `<h2 id="m0-now-title">v1-to-v3</h2>`, `<dt>In this phase for</dt><dd>1 min 30 s</dd>`,
				`<strong class="clock">2.0 s</strong>`, `value="25" aria-label="All objects"`, `data-phase="Migrating"`, `ReadyToCutOver`, `<strong>v1Lock</strong>`, `aria-current="step"`, `<p class="trouble">Not from the MachineState: copying</p>`},
			hasNot: []string{"Stale"}},
		"Hostile": {why: "every value is escaped", look: well(under("Migrating", hostile)), has: []string{"&lt;img src=x"}, hasNot: []string{"<img", `onerror="`}},
		"HostilePhase": {why: "a phase of another revision is drawn, too", look: well(under(`<img/src=x/onerror=alert(1)>`, "x")), has: []string{"not in this revision"},
			hasNot: []string{"<img"}},
		"Dead":  {why: "no manager writes it", look: well(dead), has: []string{"This status is stale: its manager has ended", "<code>kubectl get pods</code>"}},
		"New":   {why: "no controller has touched it", look: well(asObject("", &migrationv1.DatastoreMigration{ObjectMeta: metav1.ObjectMeta{Name: "new"}})), has: []string{"none yet"}},
		"Empty": {why: "what to do where there is none", look: well(), has: []string{"There is no DatastoreMigration", "kubectl phasegate check"}, hasNot: []string{"<svg"}},
		"First": {why: "before the first answer", look: func() dashboard.Snapshot { return dashboard.Snapshot{} }, has: []string{"is being asked"}},
		"Unseen": {why: "no text hides, turns or forges what is beside it", look: well(under("Migr\x1bating\u202e", "a\x1b[2J\u009b8m\u202e\u200b\nNext")), has: []string{`a\u001b[2J\u009b8m\u202e\u200b\nNext`},
			hasNot: []string{"\x1b", "\u009b", "\u202e", "\u200b"}},
		"UnseenTrouble": {why: "an answer of a server is a text of others, too", look: func() dashboard.Snapshot { return dashboard.Snapshot{Trouble: errors.New("a\u202eb")} },
			has: []string{`not answered yet: a\u202eb`}, hasNot: []string{"\u202e"}},
		"Never": {why: "the CRD is missing, or the right", look: func() dashboard.Snapshot { return dashboard.Snapshot{Trouble: errors.New(hostile)} },
			has: []string{"has not answered yet: &lt;img"}, hasNot: []string{"<img"}},
		"Stale": {why: "the last answer is too old, and nobody said why",
			look: func() dashboard.Snapshot {
				return dashboard.Snapshot{Objects: []live.Object{under("Migrating", "")}, Answered: noon.Add(-time.Minute)}
			},
			has: []string{"<title>Stale: Migrating", `role="alert">Stale: the API server does not answer. What is shown is from 11:59:00 UTC`, "v1-to-v3"}},
		"Two": {why: "one after the other, with ids of their own", look: well(under("Complete", ""), under("Pending", "")), has: []string{`id="m0-now"`, `id="m1-now"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			page := body(t, get(server(t, tc.look).Handler(), http.MethodGet, "/", "localhost"))
			for _, text := range tc.has {
				if !strings.Contains(page, text) {
					t.Errorf("%s: it lacks %s", tc.why, text)
				}
			}
			for _, text := range append(tc.hasNot, "style=", "<style", "javascript:", "http://evil") {
				if strings.Contains(page, text) {
					t.Errorf("%s: it must not have %s", tc.why, text)
				}
			}
			if t.Failed() {
				t.Log(page)
			}
		})
	}
}

// The stream begins with what is, tells a change, and ends with the program.
func TestStream(t *testing.T) {
	var phase atomic.Value
	phase.Store("Pending")
	s := server(t, func() dashboard.Snapshot { return well(under(phase.Load().(string), ""))() })
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("it is %s", got)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	if got := nextState(t, lines); got.Say != "v1-to-v3 is in phase Pending. " || got.Title != "Pending: v1-to-v3" || !strings.Contains(got.HTML, "<svg") {
		t.Errorf("it began with %+v", got)
	}
	phase.Store("Migrating")
	if got := nextState(t, lines); got.Say != "v1-to-v3 is in phase Migrating. " {
		t.Errorf("the change was told as %+v", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end of the program is no error: %v", err)
	}
}

type state struct{ Title, Say, HTML string }

// nextState reads up to the next event that is not a mere sign of life.
func nextState(t *testing.T, lines *bufio.Scanner) (s state) {
	t.Helper()
	event := ""
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && event == "state" {
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return s
}

// A kind of one's own is shown by its own machine; of hundreds of objects the first are.
func TestPageOfAnyKind(t *testing.T) {
	m := fsmtest.Machine(t, "../../../../docs/extend/examples/database-restore/database-restore.yaml", generic.Bindings())
	var all []live.Object
	for i := range 32 {
		all = append(all, live.Object{
			Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "DatabaseRestore"}, Namespace: "shop", Name: fmt.Sprintf("night-%d", i),
			Machine: v1alpha1.MachineStatus{Phase: "Failed", History: []v1alpha1.Transition{{To: "Pending"}, {From: "Pending", To: "Failed"}}},
		})
	}
	s := dashboard.Server{
		Kind: "DatabaseRestore", Machine: func(live.Object) *fsm.Machine { return m }, Caller: statusview.Caller{Flags: "--context=lab"},
		Look: well(all...), Now: func() time.Time { return noon },
	}
	page := body(t, get(s.Handler(), http.MethodGet, "/", "localhost"))
	for _, text := range []string{
		"<h2 id=\"m0-now-title\">shop/night-0</h2>", "<title>Failed: night-0", "2 more are not shown",
		"kubectl phasegate retry databaserestore/night-0 --wait --namespace shop --context=lab", "kubectl phasegate explain database-restore",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("it lacks %s", text)
		}
	}
	s.Look = well()
	if page := body(t, get(s.Handler(), http.MethodGet, "/", "localhost")); !strings.Contains(page, "There is no DatabaseRestore") {
		t.Error("it does not say that there is none")
	}
}
