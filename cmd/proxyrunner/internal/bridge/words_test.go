package bridge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// words are those of the specification that the bridge knows.
type words struct {
	Versions []string
	Meta     []string
	Codes    []int64
}

// The SDK follows the specification as that moves: an update of it that brings another version fails here.
func TestWordsOfTheSpecification(t *testing.T) {
	want := words{
		Versions: mcp.SupportedProtocolVersions(),
		Meta:     []string{mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientCapabilities, mcp.MetaKeyClientInfo, mcp.MetaKeyServerInfo, mcp.MetaKeySubscriptionID},
		Codes: []int64{jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternalError,
			mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapabilities, mcp.CodeUnsupportedProtocolVersion},
	}
	got := words{
		Versions: append([]string{modern}, legacy...),
		Meta:     []string{metaVersion, metaCapabilities, metaClient, metaServer, metaSubscription},
		Codes: []int64{codeParse, codeInvalidRequest, codeMethodNotFound, codeInvalidParams, codeInternalError,
			codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the words of the bridge (-SDK +bridge):\n%s", diff)
	}
}
