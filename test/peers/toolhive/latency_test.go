package toolhive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/phasegate/phasegate/api/toolhive/runconfig"
	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
	"github.com/phasegate/phasegate/test/support/mcp/sessions"
)

const (
	// callers are the sessions of each way, which call one after the other with a pause of pauseTime on average.
	callers, pauseTime = 8, 20 * time.Millisecond
	// Each way is measured for roundTime, in turns, so that what else the machine does falls on all of them.
	rounds, roundTime, warmUp = 5, 4 * time.Second, time.Second
)

// TestAddedLatency calls a tool of one server directly, through our proxyrunner and through ToolHive's, and prints
// how long each way takes. It asserts nothing of times: only that each call is answered, and with its own answer.
func TestAddedLatency(t *testing.T) {
	w := newWorld(t)
	ways := []*way{w.directWay("fast")}
	ways = append(ways, w.ourWay("fast"), w.theirWay("fast"))
	for _, way := range ways {
		way.connect(w)
		way.round(w, warmUp)
		way.rounds, way.cpu = nil, 0
	}
	for range rounds {
		for _, way := range ways {
			way.round(w, roundTime)
		}
	}
	for _, way := range ways {
		if way.mismatched+way.failed > 0 || len(way.all()) == 0 {
			t.Errorf("%s: %d calls answered, %d failed (the first: %v), %d got the answer of another call", way.name, len(way.all()), way.failed, way.first, way.mismatched)
		}
	}
	t.Log("\n" + tableOf(ways))
}

// way is one to the server: an address, and the proxy there.
type way struct {
	name, address string
	process       *harness.Process
	sessions      []*mcp.ClientSession
	// cpu is what the process has computed while this way was measured.
	cpu time.Duration

	mu                 sync.Mutex
	rounds             [][]time.Duration // how long each call took that was answered
	failed, mismatched int
	first              error // of those that failed
}

// directWay starts the server, which is its own network: what ToolHive's proxyrunner asks for by the name of a
// Service comes to it without anything between.
func (w *world) directWay(name string) *way {
	w.Helper()
	process := w.backend(name, v1beta1.TransportStreamableHTTP)
	address := "http://" + w.backends[name]
	w.networks[name] = address
	return &way{name: "the server alone", address: address, process: process}
}

func (w *world) theirWay(name string) *way {
	w.Helper()
	w.create(name, v1beta1.TransportStreamableHTTP, nil)
	w.awaitPhase(name, "Ready")
	address, process := w.proxy(name)
	return &way{name: "ToolHive's proxyrunner", address: address, process: process}
}

// ourWay starts our proxyrunner with a file as the manager writes it.
func (w *world) ourWay(name string) *way {
	w.Helper()
	listen, err := harness.FreeAddress()
	if err != nil {
		w.Fatal(err)
	}
	path, err := harness.Binary("proxyrunner")
	if err != nil {
		w.Fatal(err)
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "owner"}}
	if err := w.Client.Create(w.Context(), owner); err != nil {
		w.Fatal(err)
	}
	host, port := split(w.T, listen)
	targetHost, targetPort := split(w.T, w.backends[name])
	file, err := json.Marshal(runconfig.RunConfig{
		Name: "ours", Transport: v1beta1.TransportStreamableHTTP, Host: host, Port: port, TargetHost: targetHost, TargetPort: targetPort,
		Owner: &runconfig.Owner{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: string(owner.UID)},
	})
	if err != nil {
		w.Fatal(err)
	}
	dir := w.TempDir()
	if err := os.WriteFile(filepath.Join(dir, v1beta1.RunConfigFile), file, 0o600); err != nil {
		w.Fatal(err)
	}
	process := harness.ProcessForTest(w, harness.Program{Name: "ours", Path: path, Dir: dir, LogDir: w.LogDir, Args: []string{"run", image},
		Env: []string{"KUBECONFIG=" + w.Kubeconfig, "POD_NAMESPACE=" + w.ns}})
	address := "http://" + listen
	harness.Eventually(w, "our proxy", func() error { return sessions.Healthy(address) })
	return &way{name: "our proxyrunner", address: address, process: process}
}

func split(t *testing.T, address string) (string, int32) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return host, int32(port)
}

// connect opens the sessions, which keep their connections.
func (way *way) connect(w *world) {
	w.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 4 * callers}
	w.Cleanup(pool.CloseIdleConnections)
	for range callers {
		var session *mcp.ClientSession
		harness.Eventually(w, "a session: "+way.name, func() (err error) {
			transport := &mcp.StreamableClientTransport{Endpoint: way.address + "/mcp", HTTPClient: &http.Client{Transport: pool}, MaxRetries: -1}
			session, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(w.Context(), transport, nil)
			return err
		})
		w.Cleanup(func() { _ = session.Close() }) // what is measured was seen
		way.sessions = append(way.sessions, session)
	}
}

// round has all sessions call for a time.
func (way *way) round(w *world, last time.Duration) {
	way.rounds = append(way.rounds, nil)
	before := cpuOf(w.T, way.process)
	ctx, cancel := context.WithTimeout(w.Context(), last)
	defer cancel()
	var all sync.WaitGroup
	for n, session := range way.sessions {
		all.Go(func() {
			for call := 0; ctx.Err() == nil; call++ {
				way.call(w, session, fmt.Sprintf("%s/%d/%d", way.name, n, call))
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(2 * pauseTime)):
				}
			}
		})
	}
	all.Wait()
	way.cpu += cpuOf(w.T, way.process) - before
}

func (way *way) call(w *world, session *mcp.ClientSession, text string) {
	began := time.Now()
	got, err := w.call(session, "echo", map[string]any{"text": text})
	took := time.Since(began)
	way.mu.Lock()
	defer way.mu.Unlock()
	switch last := len(way.rounds) - 1; {
	case err != nil:
		way.failed++
		if way.first == nil {
			way.first = err
		}
	case got != text:
		way.mismatched++
	default:
		way.rounds[last] = append(way.rounds[last], took)
	}
}

func (way *way) all() []time.Duration { return slices.Concat(way.rounds...) }

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// cpuOf is the time that a process has computed.
func cpuOf(t *testing.T, process *harness.Process) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.PID()))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // what is before has a name in brackets
	var sum time.Duration
	for _, field := range fields[11:13] { // in the program, and in the kernel for it
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// tableOf has a line for each way, in ms; the first is the one that the others add to.
func tableOf(ways []*way) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "way\tcalls\tp50\tp99\tadded p50\tin each round\tadded p99\tits CPU, µs/call\tfailed\tmismatched")
	alone := ways[0].all()
	for _, way := range ways {
		took := way.all()
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f", way.name, len(took), at(0.5, took), at(0.99, took))
		if way == ways[0] {
			fmt.Fprint(table, "\t\t\t")
		} else {
			var each []string
			for n, took := range way.rounds {
				each = append(each, fmt.Sprintf("%.2f", at(0.5, took)-at(0.5, ways[0].rounds[n])))
			}
			fmt.Fprintf(table, "\t%.2f\t%s\t%.2f", at(0.5, took)-at(0.5, alone), strings.Join(each, " "), at(0.99, took)-at(0.99, alone))
		}
		fmt.Fprintf(table, "\t%d\t%d\t%d\n", way.cpu.Microseconds()/int64(max(len(took), 1)), way.failed, way.mismatched)
	}
	_ = table.Flush() // into memory
	return text.String()
}

// at is the time in ms that a part of the calls took at most.
func at(part float64, took []time.Duration) float64 {
	if len(took) == 0 {
		return 0
	}
	took = slices.Sorted(slices.Values(took))
	return float64(took[int(part*float64(len(took)-1))]) / float64(time.Millisecond)
}
