// Package apierrors sorts what an API call can fail with into the few classes that decide what happens
// next. It is the one place that knows which errors are worth another try.
//
// It must not know what was called, nor for whom.
package apierrors

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Class is what an error means for the caller. The zero value is no class.
type Class string

// The classes. Timeout, Throttled and Unavailable pass by themselves; the others need a change.
const (
	// None is the class of a nil error.
	None Class = ""
	// Terminal is everything that no other class describes: another try brings the same answer.
	Terminal Class = "Terminal"
	// Conflict is an object that exists already or has another resourceVersion or UID.
	Conflict Class = "Conflict"
	// Forbidden is a refusal of the caller: authentication, RBAC, or an admission plug-in.
	Forbidden Class = "Forbidden"
	// NotFound is an object, or a whole resource, that is not there.
	NotFound Class = "NotFound"
	// Invalid is a refusal of the content.
	Invalid Class = "Invalid"
	// Timeout is an answer that did not come in time; the call may have taken effect.
	Timeout Class = "Timeout"
	// Throttled is a server that asks for patience; see RetryAfter.
	Throttled Class = "Throttled"
	// Unavailable is a server or a connection that failed; the call may have taken effect.
	Unavailable Class = "Unavailable"
)

// classes is asked in order; the first match decides.
var classes = []struct {
	class Class
	match func(error) bool
}{
	// The caller gave up: nothing is wrong with the server, and another try cannot help.
	{Terminal, func(err error) bool { return errors.Is(err, context.Canceled) }},
	{Forbidden, isDenied}, // whatever reason it gives
	{Throttled, apierrors.IsTooManyRequests},
	{Timeout, apierrors.IsTimeout},
	{Timeout, apierrors.IsServerTimeout},
	{Timeout, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
	{Conflict, apierrors.IsConflict},
	{Conflict, apierrors.IsAlreadyExists},
	{Unavailable, isPolicyUnready},
	{NotFound, apierrors.IsNotFound},
	{NotFound, meta.IsNoMatchError},
	{Forbidden, apierrors.IsForbidden},
	{Forbidden, apierrors.IsUnauthorized},
	{Invalid, apierrors.IsInvalid},
	{Invalid, apierrors.IsBadRequest},
	{Invalid, apierrors.IsRequestEntityTooLargeError},
	{Unavailable, isServerError},
	{Terminal, isAnswer}, // any other answer of the server is final, whatever its text says
	{Unavailable, isConnectionLoss},
	{Timeout, isNetTimeout},
}

// Classify returns the class of err, None for nil. It looks through wrapping.
func Classify(err error) Class {
	if err == nil {
		return None
	}
	for _, c := range classes {
		if c.match(err) {
			return c.class
		}
	}
	return Terminal
}

// Retryable tells whether the same call may succeed later without anybody changing anything.
func Retryable(c Class) bool { return c == Timeout || c == Throttled || c == Unavailable }

// RetryAfter is how long the server asks to wait, 0 if it does not say.
func RetryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}

// answerOf finds the answer of the server inside an error.
func answerOf(err error) (answer metav1.Status, found bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}, false
	}
	return status.Status(), true
}

func isAnswer(err error) bool {
	_, is := answerOf(err)
	return is
}

func isServerError(err error) bool {
	answer, is := answerOf(err)
	return is && (answer.Code >= http.StatusInternalServerError || answer.Code == 0 && answer.Reason == metav1.StatusReasonInternalError)
}

// isDenied tells a refusal of an admission webhook that does not call the object invalid. It may bear any reason: that
// of Calico's for ClusterInformation is MethodNotAllowed. There is no other sign of it than the text.
func isDenied(err error) bool {
	return isAnswer(err) && denied.MatchString(err.Error()) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err)
}

var denied = regexp.MustCompile(`admission webhook "[^"]*" denied the request`)

// Refused tells that the API server does not let an object be written, by its rules or by admission, while neither a
// right nor credentials are missing: the same try fails again until somebody changes the object, or what refuses it.
func Refused(err error) bool {
	class := Classify(err)
	return (class == Invalid || class == Forbidden) && !NotAllowed(err) && !Unauthorized(err)
}

// Unauthorized tells that the API server does not know the caller: its credentials are wrong, or it was started a moment
// ago and cannot verify them yet. It says nothing of objects.
func Unauthorized(err error) bool { return apierrors.IsUnauthorized(err) && !isDenied(err) }

// Final tells that the API server has answered, and answers the same again. An error that nobody knows is no answer: it
// says nothing of objects.
func Final(err error) bool {
	return isAnswer(err) && !Retryable(Classify(err)) && !Unauthorized(err)
}

// isPolicyUnready tells an admission policy that refuses everything because the API server does not know
// the kind of its parameters: for half a minute after its own start, or after that of the kind's CRD. There
// is no other sign of it than the text.
func isPolicyUnready(err error) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) &&
		strings.Contains(err.Error(), "denied request: failed to configure policy: failed to find resource referenced by paramKind")
}

func isConnectionLoss(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		utilnet.IsProbableEOF(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return true
	}
	if _, is := errors.AsType[*net.OpError](err); is {
		return true // dial, read or write on a socket: no answer came
	}
	// HTTP/2 reports a lost stream or a server that goes away as text only.
	return lostHTTP2.MatchString(err.Error())
}

var lostHTTP2 = regexp.MustCompile("http2: server sent GOAWAY|stream error: stream ID|http2: client connection force closed")

func isNetTimeout(err error) bool {
	failure, is := errors.AsType[net.Error](err)
	return is && failure.Timeout()
}

// Details are what the server says about the object of a failed call, or nil.
func Details(err error) *metav1.StatusDetails {
	answer, _ := answerOf(err)
	return answer.Details
}

// NotAllowed tells that the caller lacks a right, or that an API server that was started a moment ago does
// not know yet that it has it. What admission forbids, it forbids for the object's sake. There is no other
// sign of it than the text.
func NotAllowed(err error) bool {
	return apierrors.IsForbidden(err) && notAllowed.MatchString(err.Error())
}

var notAllowed = regexp.MustCompile(`is forbidden: User "[^"]*" cannot \w+ resource "[^"]*" in API group `)

// NamespaceEnds tells that an object was refused because its namespace is being deleted.
func NamespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// ObjectNotFound tells that the API server serves the kind and has no such object: it names both. A 404 for a
// kind that is not served, or not yet, and one of anything between us and the API server say nothing of objects; it is
// false then.
func ObjectNotFound(err error) bool {
	about := Details(err)
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		about != nil && about.Kind != "" && about.Name != ""
}

// NotServed tells that a request failed because the API server does not serve the kind, or not yet. It says nothing of
// objects, and may pass by itself.
func NotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && !ObjectNotFound(err)
}

// StoreFull tells that etcd has used up its quota and takes no more writes, whatever they are about; deletes and reads
// still pass. It does not pass by itself: somebody has to make room and to lift the alarm. There is no other sign of
// it than the text.
func StoreFull(err error) bool {
	return err != nil && strings.Contains(err.Error(), "database space exceeded")
}
