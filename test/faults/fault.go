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
	t.crash()
	return refuse(t, req, next)
}

// CrashAfter is CrashBefore once the server has done the work: nobody ever reads
// the answer.
var CrashAfter Fault = func(t *Transport, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	t.crash()
	return lose(t, req, next)
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
	status := metav1.Status{Code: int32(code), Reason: reason}
	if seconds := int32(retryAfter / time.Second); seconds > 0 {
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: seconds}
	}
	return answer(status)
}

// Expired answers a list as the API server does when etcd has forgotten the snapshot of
// the pages before. With the token, one can go on with what is there now; it may be empty.
func Expired(token string) Fault {
	return answer(metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, ListMeta: metav1.ListMeta{Continue: token}})
}

func answer(status metav1.Status) Fault {
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status = metav1.StatusFailure
	return func(_ *Transport, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		closeBody(req)
		told := status // requests may meet it at the same time
		told.Message = fmt.Sprintf("a fault of the test: %d for %s %s", told.Code, req.Method, req.URL.Path)
		header := http.Header{"Content-Type": {"application/json"}}
		if told.Details != nil {
			header.Set("Retry-After", strconv.Itoa(int(told.Details.RetryAfterSeconds)))
		}
		body, err := json.Marshal(told)
		if err != nil {
			return nil, fmt.Errorf("write the answer %d: %w", told.Code, err)
		}
		return &http.Response{
			Status: fmt.Sprintf("%d %s", told.Code, http.StatusText(int(told.Code))), StatusCode: int(told.Code),
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
