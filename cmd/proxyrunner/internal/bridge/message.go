package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Codes of errors that JSON-RPC names.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternalError  = -32603
)

// rpcID is the id of a call as JSON: a number as it was written, since it is to come
// back like that, or a string. Empty stands for none.
type rpcID string

// rpcMessage is *rpcRequest or *rpcResponse. The types of the SDK keep an id as a
// float64, and do not tell null from nothing.
type rpcMessage interface{ wire() rpcWire }

// rpcRequest is a call or, without an id, a notification.
type rpcRequest struct {
	ID     rpcID
	Method string
	Params json.RawMessage
}

// IsCall tells whether an answer is awaited.
func (r *rpcRequest) IsCall() bool { return r.ID != "" }

// rpcResponse is an answer: of Result and Error one is there. It has no id if that
// of the call could not be read.
type rpcResponse struct {
	ID            rpcID
	Result, Error json.RawMessage
}

type rpcError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

type rpcWire struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func (r *rpcRequest) wire() rpcWire {
	return rpcWire{Version: "2.0", ID: json.RawMessage(r.ID), Method: r.Method, Params: r.Params}
}

func (r *rpcResponse) wire() rpcWire {
	w := rpcWire{Version: "2.0", ID: json.RawMessage(r.ID), Result: r.Result, Error: r.Error}
	if r.ID == "" {
		w.ID = json.RawMessage("null")
	}
	return w
}

// encodeMessage writes a message on one line, without the line's end.
func encodeMessage(m rpcMessage) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(m.wire()); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

var (
	errNotJSON = errors.New("it is not JSON")
	errID      = errors.New("the id must be a string or an integer")
)

// decode reads exactly one message. The error says what is wrong with it; it comes
// with a response if it is known which call that would answer.
func decode(data []byte) (rpcMessage, error) {
	var members map[string]json.RawMessage // whose names have a case, other than those of a struct
	if err := json.Unmarshal(data, &members); err != nil {
		if json.Valid(data) {
			return nil, errors.New("it is not one object; a batch is none")
		}
		return nil, fmt.Errorf("%w: %w", errNotJSON, err)
	}
	if string(members["jsonrpc"]) != `"2.0"` {
		return nil, errors.New(`jsonrpc must be "2.0"`)
	}
	id, err := readID(members["id"])
	if err != nil {
		return nil, err
	}
	method, isRequest := members["method"]
	if !isRequest {
		return response(id, members)
	}
	r := &rpcRequest{ID: id, Params: members["params"]}
	if json.Unmarshal(method, &r.Method) != nil || r.Method == "" {
		return nil, errors.New("the method must be a string")
	}
	if _, there := members["id"]; there && id == "" {
		return nil, errID // null
	}
	return r, nil
}

func response(id rpcID, members map[string]json.RawMessage) (rpcMessage, error) {
	r := &rpcResponse{ID: id, Result: members["result"]}
	if e := members["error"]; string(e) != "null" {
		r.Error = e
	}
	var said rpcError
	switch {
	case r.Result == nil && r.Error == nil:
		return r, errors.New("it has neither a result nor an error")
	case r.Result != nil && r.Error != nil:
		return r, errors.New("it has both a result and an error")
	case r.Result != nil && id == "":
		return r, errors.New("a result must have the id of the call")
	case r.Error != nil && json.Unmarshal(r.Error, &said) != nil:
		return r, errors.New("its error cannot be read")
	}
	return r, nil
}

// readID checks an id; that of null and of nothing is empty.
func readID(raw json.RawMessage) (rpcID, error) {
	text := string(raw)
	switch {
	case text == "" || text == "null":
		return "", nil
	case text[0] == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", errID
		}
		raw, err := json.Marshal(s) // one way to write it, by which it is found again
		return rpcID(raw), err
	case !strings.ContainsAny(text[:1], "-0123456789"):
		return "", errID
	}
	if n, err := strconv.ParseFloat(text, 64); err != nil || n != math.Trunc(n) {
		return "", errID
	}
	return rpcID(text), nil
}

// number is the id by which the server knows a request.
func number(n int64) rpcID { return rpcID(strconv.FormatInt(n, 10)) }

// int is the number that an id stands for; ok is false if there is none. Some programs know
// no integers, and some answer 1 with "1": only the bridge's own way to write a number, in
// quotes, is one, so that no other text can stand for a call.
func (id rpcID) int() (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil {
		return n, true
	}
	if text := strings.Trim(string(id), `"`); `"`+text+`"` == string(id) {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && string(number(n)) == text
	}
	f, err := strconv.ParseFloat(string(id), 64)
	return int64(f), err == nil
}

// swap puts value where path leads in doc, and returns what was there. Where the
// path leads nowhere, doc comes back as it was, and old is nil.
func swap(doc json.RawMessage, value any, path ...string) (out, old json.RawMessage) {
	if len(path) == 0 {
		if out, err := json.Marshal(value); err == nil {
			return out, doc
		}
		return doc, nil
	}
	var fields map[string]json.RawMessage
	if len(doc) == 0 || json.Unmarshal(doc, &fields) != nil {
		return doc, nil
	}
	inner, there := fields[path[0]]
	if !there {
		return doc, nil
	}
	fields[path[0]], old = swap(inner, value, path[1:]...)
	if old == nil {
		return doc, nil
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return doc, nil
	}
	return out, old
}

// at reads what is where path leads in doc; nil if there is nothing.
func at(doc json.RawMessage, path ...string) json.RawMessage {
	_, old := swap(doc, nil, path...)
	return old
}
