package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is what happens to a request instead of being passed on. Like every
// RoundTripper it closes the body of the request.
type Fault func(t *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error)

// Pass passes the request on: a rule with it only counts, and Transport.Met lists
// what it counted.
var Pass Fault = func(_ *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	return next.RoundTrip(req)
}

// Refuse does not send the request: the connection is refused.
var Refuse Fault = refuse

// Lose sends the request, and loses the answer once the server has done the work:
// the connection is reset.
var Lose Fault = lose

// CrashBefore cuts the process off before the request is sent: this one and all
// that follow are refused. What was sent before goes on, as after a real crash.
var CrashBefore Fault = func(t *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	return crash(t, req, next, refuse)
}

// CrashAfter is CrashBefore once the server has done the work: nobody ever reads
// the answer.
var CrashAfter Fault = func(t *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	return crash(t, req, next, lose)
}

func crash(t *Transport, req *http.Request, next http.RoundTripper, last Fault) (*http.Response, error) {
	if t.crash() {
		defer close(t.down)
	}
	return last(t, req, next)
}

// Before does something else first, and passes the request on then.
func Before(do func()) Fault {
	return func(_ *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		do()
		return next.RoundTrip(req)
	}
}

func refuse(_ *Transport, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
	closeBody(req)
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

func lose(_ *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	answer, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	// A server may begin to answer before it is done; it is at the end of the answer.
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return nil, err
	}
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// Answer does not send the request, and answers a Status of this code as the API
// server would: Answer(http.StatusConflict, metav1.StatusReasonConflict, 0).
// Clients of Kubernetes try again by themselves where retryAfter, in whole seconds,
// is above 0.
func Answer(code int, reason metav1.StatusReason, retryAfter time.Duration) Fault {
	return func(_ *Transport, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		closeBody(req)
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(code), Reason: reason,
			Message: fmt.Sprintf("a fault of the test: %d for %s %s", code, req.Method, req.URL.Path),
		}
		header := http.Header{"Content-Type": {"application/json"}}
		if seconds := int(retryAfter / time.Second); seconds > 0 {
			header.Set("Retry-After", strconv.Itoa(seconds))
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		}
		body, err := json.Marshal(status)
		if err != nil {
			return nil, fmt.Errorf("write the answer %d: %w", code, err)
		}
		return &http.Response{
			Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
		}, nil
	}
}

// Delay passes the request on after a while, or not at all if the client gives up
// before.
func Delay(d time.Duration) Fault {
	return func(_ *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-req.Context().Done():
			closeBody(req)
			return nil, req.Context().Err()
		case <-timer.C:
			return next.RoundTrip(req)
		}
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // nobody reads it
	}
}
