package processes

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// proxy is between a manager and its API server. While it is frozen no watch tells
// anything, and a list of migrations is answered with the one before: as by an API
// server that lags behind.
type proxy struct {
	pass *httputil.ReverseProxy

	mu sync.Mutex
	// thaw is closed when the proxy is no longer frozen; nil: it is not.
	thaw chan struct{}
	// lists are the last answers, by what was asked.
	lists map[string]*answer
}

type answer struct {
	header http.Header
	body   bytes.Buffer
}

// startProxy answers the path of a kubeconfig with which a manager goes through it.
func (w *world) startProxy(t *testing.T) (p *proxy, kubeconfig string) {
	t.Helper()
	target, err := url.Parse(w.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// Whoever asks brings a token; the proxy adds nothing of its own.
	transport, err := rest.TransportFor(&rest.Config{Host: w.Config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: w.Config.CAData, CAFile: w.Config.CAFile}})
	if err != nil {
		t.Fatal(err)
	}
	p = &proxy{lists: map[string]*answer{}}
	p.pass = &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewTLSServer(p) // clients keep their tokens from a server without TLS
	t.Cleanup(func() {
		p.freeze(false)
		server.CloseClientConnections()
		server.Close()
	})
	kubeconfig = filepath.Join(t.TempDir(), "through-proxy")
	w.kubeconfig(t, kubeconfig)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// freeze may be called twice.
func (p *proxy) freeze(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case frozen && p.thaw == nil:
		p.thaw = make(chan struct{})
	case !frozen && p.thaw != nil:
		close(p.thaw)
		p.thaw = nil
	}
}

// ServeHTTP is called by many at a time.
func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Get("watch") != "" {
		p.pass.ServeHTTP(&stream{w, p, req}, req)
		return
	}
	if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, "/datastoremigrations") {
		p.pass.ServeHTTP(w, req)
		return
	}
	key := req.URL.String() + " " + req.Header.Get("Accept")
	p.mu.Lock()
	old, frozen := p.lists[key], p.thaw != nil
	p.mu.Unlock()
	if frozen && old != nil {
		for name, values := range old.header {
			w.Header()[name] = values
		}
		_, _ = w.Write(old.body.Bytes()) // who asked may have gone
		return
	}
	now := &recording{ResponseWriter: w, answer: &answer{}}
	p.pass.ServeHTTP(now, req)
	if now.code == http.StatusOK {
		now.answer.header = w.Header().Clone()
		p.mu.Lock()
		p.lists[key] = now.answer
		p.mu.Unlock()
	}
}

// stream holds events back.
type stream struct {
	http.ResponseWriter
	proxy *proxy
	req   *http.Request
}

// Unwrap lets the ReverseProxy flush.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stream) Write(data []byte) (int, error) {
	s.proxy.mu.Lock()
	thaw := s.proxy.thaw
	s.proxy.mu.Unlock()
	if thaw != nil {
		select {
		case <-thaw:
		case <-s.req.Context().Done():
			return 0, s.req.Context().Err()
		}
	}
	return s.ResponseWriter.Write(data)
}

// recording keeps what passes.
type recording struct {
	http.ResponseWriter
	answer *answer
	code   int
}

func (r *recording) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *recording) Write(data []byte) (int, error) {
	r.answer.body.Write(data)
	return r.ResponseWriter.Write(data)
}
