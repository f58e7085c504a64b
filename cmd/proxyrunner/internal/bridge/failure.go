package bridge

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// Codes of errors made here, as the SDKs use them.
const (
	codeConnectionClosed   = -32000
	codeRequestTimeout     = -32001
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// failure is an error that a client is to see: in JSON-RPC's words, and as the
// HTTP status where nothing has been written yet.
type failure struct {
	status  int
	code    int64
	message string
	data    any
}

// restarted has status 200: the call may have been done, and a client must not
// believe that sending it again is safe because a gateway was in a bad state.
func restarted() *failure {
	return &failure{status: http.StatusOK, code: codeConnectionClosed,
		message: "the MCP server restarted while this request was under way: it may or may not have been done; try again"}
}

func unavailable(why string) *failure {
	return &failure{status: http.StatusServiceUnavailable, code: codeConnectionClosed, message: why + ": try again"}
}

func sessionEnded() *failure {
	return &failure{status: http.StatusNotFound, code: codeConnectionClosed, message: "the session has ended: initialize again"}
}

func timedOut() *failure {
	return &failure{status: http.StatusGatewayTimeout, code: codeRequestTimeout,
		message: "the MCP server did not answer in time: try again, or raise TOOLHIVE_PROXY_REQUEST_TIMEOUT"}
}

// cancelled has status 200, as the call may have been done.
func cancelled() *failure {
	return &failure{status: http.StatusOK, code: codeConnectionClosed, message: "the client has cancelled this request"}
}

// legacy are the versions of the protocol that know sessions, newest first.
var legacy = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func unsupported(version string, spoken []string) *failure {
	message := "protocol version " + version + " is not supported by the MCP server behind this proxy: initialize with an older one"
	if isModern(spoken) {
		message = "the MCP server behind this proxy takes no initialize: it speaks " + strings.Join(spoken, ", ") + " only"
	}
	return &failure{status: http.StatusBadRequest, code: codeUnsupportedVersion, message: message,
		data: map[string]any{"supported": spoken, "requested": version}}
}

// response is the failure as the answer to the call id.
func (f *failure) response(id rpcID) *rpcResponse {
	e := rpcError{Code: f.code, Message: f.message}
	if f.data != nil {
		e.Data, _ = json.Marshal(f.data) // strings and lists of them
	}
	data, _ := json.Marshal(e)
	return &rpcResponse{ID: id, Error: data}
}

// malformed is for a message of a client that decode does not take.
func malformed(err error) *failure {
	why := &failure{status: http.StatusBadRequest, code: codeInvalidRequest, message: "the request is not one JSON-RPC message: " + err.Error()}
	if errors.Is(err, errNotJSON) {
		why.code = codeParse
	}
	return why
}

// wrongAnswer is for an answer of the server that decode does not take.
func wrongAnswer(err error) *failure {
	return &failure{status: http.StatusBadGateway, code: codeInternalError, message: "the answer of the MCP server is wrong: " + err.Error()}
}
