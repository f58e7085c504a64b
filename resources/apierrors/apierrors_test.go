package apierrors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestClassify(t *testing.T) {
	gr := schema.GroupResource{Group: "projectcalico.org", Resource: "tiers"}
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
	}
	webhook := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: reason, Message: `admission webhook "h" denied the request: no`}}
	}
	request := func(err error) error { return &url.Error{Op: "Post", URL: "https://x", Err: err} }
	for name, tc := range map[string]struct {
		err       error
		want      Class
		retryable bool
		why       string
	}{
		"nil":                {nil, None, false, "nothing failed"},
		"cancelled":          {request(context.Canceled), Terminal, false, "the caller gave up"},
		"deadline":           {request(context.DeadlineExceeded), Timeout, true, "the answer was late"},
		"i/o timeout":        {request(os.ErrDeadlineExceeded), Timeout, true, "the socket was too slow"},
		"gateway timeout":    {status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout), Timeout, true, "the server was too slow"},
		"server timeout":     {apierrors.NewServerTimeout(gr, "create", 1), Timeout, true, "the server says so"},
		"throttled":          {apierrors.NewTooManyRequests("slow down", 3), Throttled, true, "the server asks for patience"},
		"internal":           {apierrors.NewInternalError(errors.New("etcd")), Unavailable, true, "etcd elects a leader"},
		"bad gateway":        {status(http.StatusBadGateway, metav1.StatusReasonUnknown), Unavailable, true, "an aggregated server is away"},
		"unavailable":        {apierrors.NewServiceUnavailable("starting"), Unavailable, true, "the server starts"},
		"reset":              {request(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), Unavailable, true, "the server restarted"},
		"bare reset":         {syscall.ECONNRESET, Unavailable, true, "however it is wrapped"},
		"refused":            {request(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), Unavailable, true, "the server is about to start"},
		"EOF":                {request(io.EOF), Unavailable, true, "the connection ended"},
		"unexpected EOF":     {fmt.Errorf("read body: %w", io.ErrUnexpectedEOF), Unavailable, true, "the body ended"},
		"HTTP/2 lost":        {errors.New("http2: client connection lost"), Unavailable, true, "a ping was not answered"},
		"HTTP/2 goes away":   {errors.New("http2: server sent GOAWAY and closed the connection"), Unavailable, true, "the server shuts down"},
		"HTTP/2 stream":      {errors.New("stream error: stream ID 7; INTERNAL_ERROR"), Unavailable, true, "one stream broke"},
		"already exists":     {apierrors.NewAlreadyExists(gr, "a"), Conflict, false, "the same create fails again"},
		"conflict":           {apierrors.NewConflict(gr, "a", errors.New("modified")), Conflict, false, "read again first"},
		"wrapped conflict":   {fmt.Errorf("write: %w", apierrors.NewConflict(gr, "a", errors.New("modified"))), Conflict, false, "wrapping changes nothing"},
		"not found":          {apierrors.NewNotFound(gr, "a"), NotFound, false, "it is not there"},
		"no such kind":       {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Tier"}}, NotFound, false, "the whole resource is not there"},
		"forbidden":          {apierrors.NewForbidden(gr, "a", errors.New("no")), Forbidden, false, "RBAC does not change by itself"},
		"unauthorized":       {apierrors.NewUnauthorized("no"), Forbidden, false, "nor do credentials"},
		"invalid":            {apierrors.NewInvalid(schema.GroupKind{Kind: "Tier"}, "a", nil), Invalid, false, "the content must change"},
		"bad request":        {apierrors.NewBadRequest("unknown field"), Invalid, false, "strict decoding answers 400"},
		"too large":          {apierrors.NewRequestEntityTooLargeError("3 MiB"), Invalid, false, "the content must change"},
		"method not allowed": {apierrors.NewMethodNotSupported(gr, "create"), Terminal, false, "it never will be"},
		"gone":               {apierrors.NewResourceExpired("compacted"), Terminal, false, "the same token expires again"},
		"policy without its kind": {apierrors.NewInvalid(schema.GroupKind{Kind: "Tier"}, "a", field.ErrorList{field.Forbidden(nil, "policy \"p\" denied request: failed to configure policy: failed to find resource referenced by paramKind: 'projectcalico.org/v3, Kind=NetworkPolicy'")}),
			Unavailable, true, "the API server was started a moment ago and looks for kinds twice a minute"},
		"denied by a webhook":  {webhook(metav1.StatusReasonMethodNotAllowed), Forbidden, false, "Calico's webhook of ClusterInformation gives this reason"},
		"denied as conflict":   {fmt.Errorf("write: %w", webhook(metav1.StatusReasonConflict)), Forbidden, false, "reading again would change nothing"},
		"called invalid":       {webhook(metav1.StatusReasonInvalid), Invalid, false, "the object is to blame"},
		"webhook away":         {apierrors.NewInternalError(errors.New(`failed calling webhook "h": connection refused`)), Unavailable, true, "it starts again"},
		"refusal about resets": {apierrors.NewForbidden(gr, "connection reset", errors.New("EOF")), Forbidden, false, "the text of an answer is no sign"},
		"unknown":              {errors.New("boom"), Terminal, false, "when in doubt, tell somebody"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Classify(tc.err); got != tc.want || Retryable(got) != tc.retryable {
				t.Errorf("%v is %q, retryable %v; want %q, %v: %s", tc.err, got, Retryable(got), tc.want, tc.retryable, tc.why)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"said":       {apierrors.NewTooManyRequests("slow down", 3), 3 * time.Second},
		"wrapped":    {fmt.Errorf("write: %w", apierrors.NewTooManyRequests("slow down", 3)), 3 * time.Second},
		"not said":   {apierrors.NewInternalError(errors.New("x")), 0},
		"no answer":  {io.EOF, 0},
		"no error":   {nil, 0},
		"server end": {apierrors.NewServerTimeout(schema.GroupResource{}, "get", 2), 2 * time.Second},
	} {
		if got := RetryAfter(tc.err); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	gr := schema.GroupResource{Group: "projectcalico.org", Resource: "tiers"}
	for name, tc := range map[string]struct {
		why  string
		err  error
		want bool
	}{
		"no right": {why: "another object would fare no better", want: true,
			err: apierrors.NewForbidden(gr, "", errors.New(`User "system:serviceaccount:a:b" cannot create resource "tiers" in API group "projectcalico.org" at the cluster scope`))},
		"no right, wrapped": {why: "the copy wraps it", want: true,
			err: fmt.Errorf("write: %w", apierrors.NewForbidden(gr, "a", errors.New(`User "u" cannot patch resource "tiers" in API group "projectcalico.org" at the cluster scope`)))},
		"a quota":       {why: "it is about this object", err: apierrors.NewForbidden(gr, "a", errors.New("exceeded quota: none"))},
		"not an answer": {why: "nobody has refused anything", err: errors.New(`tiers is forbidden: User "u" cannot create resource "tiers" in API group "projectcalico.org"`)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NotAllowed(tc.err); got != tc.want {
				t.Errorf("%v: %t, want %t: %s", tc.err, got, tc.want, tc.why)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	gr := schema.GroupResource{Group: "projectcalico.org", Resource: "tiers"}
	for name, tc := range map[string]struct {
		why  string
		err  error
		want bool
	}{
		"by rules":     {why: "the object must change", want: true, err: apierrors.NewInvalid(schema.GroupKind{Kind: "Tier"}, "a", nil)},
		"by admission": {why: "the webhook must change", want: true, err: apierrors.NewForbidden(gr, "a", errors.New("frozen"))},
		"a right":      {why: "a right can be granted", err: apierrors.NewForbidden(gr, "a", errors.New(`User "u" cannot patch resource "tiers" in API group "projectcalico.org" at the cluster scope`))},
		"credentials":  {why: "an API server that restarts knows none for some seconds", err: apierrors.NewUnauthorized("no")},
		"as a webhook's": {why: "it has a code of its own choice", want: true, err: &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized, Message: `admission webhook "h" denied the request: no`}}},
		"a busy server": {why: "it passes", err: apierrors.NewTooManyRequests("slow down", 3)},
		"nothing":       {why: "nobody has refused anything"},
	} {
		if got := Refused(tc.err); got != tc.want {
			t.Errorf("%s: %t, want %t: %s", name, got, tc.want, tc.why)
		}
	}
}

// etcd says so in this text, which the API server hands on as a failure of its own.
func TestStoreFull(t *testing.T) {
	full := fmt.Errorf("create: %w", apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded")))
	if !StoreFull(full) || StoreFull(nil) || StoreFull(apierrors.NewInternalError(errors.New("etcdserver: request timed out"))) {
		t.Error("a full store is not told from another failure")
	}
}
