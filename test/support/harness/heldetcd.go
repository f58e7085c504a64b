package harness

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
)

// HeldEtcd is a way to etcd on which some writes wait, as in a member that stalls: an API server has let them in, and they
// are not stored yet. All other requests pass.
type HeldEtcd struct {
	// URL is for --etcd-servers.
	URL string

	mark     []byte
	waiting  atomic.Int32
	released chan struct{}
	release  func()
	server   *http.Server
}

// HoldEtcd begins to hold the writes to keys that contain mark. etcd is its URL, without TLS.
func HoldEtcd(etcd, mark string) (*HeldEtcd, error) {
	to, err := url.Parse(etcd)
	if err != nil {
		return nil, fmt.Errorf("hold writes to etcd: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("hold writes to etcd: %w", err)
	}
	h := &HeldEtcd{URL: "http://" + listener.Addr().String(), mark: []byte(mark), released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	grpc := new(http.Protocols)
	grpc.SetUnencryptedHTTP2(true)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     &http.Transport{Protocols: grpc},
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	h.server = &http.Server{Protocols: grpc, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.hold(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = h.server.Serve(listener) }() // ends with Close
	return h, nil
}

// Waiting is how many writes wait.
func (h *HeldEtcd) Waiting() int { return int(h.waiting.Load()) }

// Release lets all writes pass from now on. It may be called again.
func (h *HeldEtcd) Release() { h.release() }

// Close ends the way.
func (h *HeldEtcd) Close() error {
	h.Release()
	return h.server.Close()
}

func (h *HeldEtcd) hold(r *http.Request) error {
	if r.URL.Path != "/etcdserverpb.KV/Txn" {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, h.mark) {
		return nil
	}
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	select {
	case <-h.released:
	case <-r.Context().Done():
	}
	return nil
}
