// Package rpcerror answers an HTTP request that cannot be served with an error
// that an MCP client shows to its user: the HTTP status, and a JSON-RPC error in
// the body, with the id of the call that fails.
//
// It knows no backend and no session.
package rpcerror

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Code is that of every error made here: JSON-RPC leaves -32000 to -32099 to servers.
const Code = -32000

// MaxID is how long the id of a call may be, in bytes: it is held until the call is answered.
const MaxID = 1 << 10

// ID reads the id of a call out of the body of a request. It is null if there is
// none that a reply could name: a notification, a batch, no JSON at all, or one that
// is too long to be held.
func ID(body []byte) json.RawMessage {
	var call struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(body, &call) != nil || len(call.ID) == 0 || len(call.ID) > MaxID {
		return json.RawMessage("null")
	}
	return call.ID
}

// Write answers with status and message. id is that of the call, from ID; nil
// counts as null.
func Write(w http.ResponseWriter, status int, id json.RawMessage, message string) {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": Code, "message": message},
	})
	if err != nil { // the id was read from JSON, so it can be written
		body = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"internal error"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// WriteRetry is Write with a Retry-After header.
func WriteRetry(w http.ResponseWriter, status int, id json.RawMessage, message string, after time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(after.Seconds()))))
	Write(w, status, id, message)
}

// MaxBody is the greatest request of a client that is passed on, in bytes, where nobody says.
const MaxBody = 8 << 20
