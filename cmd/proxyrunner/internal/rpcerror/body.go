package rpcerror

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// MaxBody is the greatest request of a client that is passed on, in bytes.
const MaxBody = 8 << 20

// Body reads the body of a request. If it is too large or broken off, the request
// is answered and ok is false.
func Body(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		Write(w, http.StatusRequestEntityTooLarge, nil,
			fmt.Sprintf("the request is larger than %d bytes, which is all that the proxy passes on", MaxBody))
		return nil, false
	case err != nil:
		Write(w, http.StatusBadRequest, nil, fmt.Sprintf("read the request: %v", err))
		return nil, false
	}
	return body, true
}
