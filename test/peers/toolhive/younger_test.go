package toolhive

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/phasegate/phasegate/api/toolhive/v1beta1"
	"github.com/phasegate/phasegate/test/support/harness"
)

// What a program of v0.44.0 ignores, that of v0.63.0 does: the manager writes it where it knows the version.

// encrypted is a server whose sessions are in a store with TLS: what the program sends there first is no command of Redis.
func (w *world) encrypted() {
	const name = "encrypted"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = listener.Close() })
	first := make(chan []byte, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			greeting := make([]byte, 3)
			_ = conn.SetReadDeadline(time.Now().Add(harness.Patience))
			if _, err := io.ReadFull(conn, greeting); err == nil {
				select {
				case first <- greeting:
				default:
				}
			}
			_ = conn.Close()
		}
	}()
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.create(name, v1beta1.TransportStreamableHTTP, func(s *v1beta1.MCPServerSpec) {
		s.SessionStorage = &v1beta1.SessionStorage{Provider: "redis", Address: listener.Addr().String(), TLS: raw(`{"insecureSkipVerify":true}`)}
	})
	select {
	case got := <-first:
		if got[0] != 0x16 || got[1] != 0x03 {
			w.Errorf("the store is greeted with %q, want a handshake of TLS", got)
		}
	case <-time.After(harness.Patience):
		w.Error("the program does not connect to the store")
	}
	srv := &v1beta1.MCPServer{}
	if err := w.Client.Get(w.Context(), w.key(name), srv); err != nil {
		w.Fatal(err)
	}
	if err := w.Client.Delete(w.Context(), srv); err != nil { // it would start again and again
		w.Fatal(err)
	}
}

// limited asks for more clients than the authorization server at an address lets register themselves.
func (w *world) limited(address, client string) {
	w.Helper()
	harness.Eventually(w, "a client too many", func() error {
		answer, err := http.Post(address+"/oauth/register", "application/json", strings.NewReader(client))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusTooManyRequests {
			return fmt.Errorf("register: %s", answer.Status)
		}
		return nil
	})
}

// unsent is a server that asks for a header which the program does not send: it serves, and says so.
func (w *world) unsent() {
	const name = "unsent"
	w.backend(name, v1beta1.TransportStreamableHTTP)
	w.configure("MCPExternalAuthConfig", "header", map[string]any{"type": "headerInjection",
		"headerInjection": map[string]any{"headerName": "X-Key", "valueSecretRef": map[string]any{"name": "keys", "key": "a"}}})
	w.create(name, v1beta1.TransportStreamableHTTP, func(s *v1beta1.MCPServerSpec) { s.ExternalAuthConfigRef = &v1beta1.LocalRef{Name: "header"} })
	srv := w.awaitPhase(name, "Ready")
	w.place().Converse(name, v1beta1.TransportStreamableHTTP)
	c := meta.FindStatusCondition(srv.Status.Conditions, v1beta1.ConditionSpecEnforced)
	if c == nil || c.Reason != v1beta1.ReasonNotSent || !strings.Contains(c.Message, "headerInjection is not sent") {
		w.Errorf("condition: %+v", c)
	}
}
