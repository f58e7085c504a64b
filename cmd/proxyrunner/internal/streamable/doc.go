// Package streamable serves clients of streamable-http from an MCP server that speaks sse.
//
// Each session of such a client is a session of sse of its own with the server, opened with the
// client's headers, so that the server tells its clients apart as it always does; a bridge, which
// is what serves them from a server of stdio, is between the two. What the server itself answers
// comes first: only what it refuses is served here.
//
// It knows no Kubernetes.
package streamable
