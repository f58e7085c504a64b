package mcpserver

import (
	"context"
	"strings"

	"github.com/phasegate/phasegate/fsm"
)

// checkSpec finds what stops the server, which is Terminal. What cannot be used as it is and stops nothing is in the
// conditions that decorate makes.
//
// A server that is stopped here comes to no other step. What its references lead to is told all
// the same, as far as it can be asked.
func (s *steps) checkSpec(ctx context.Context, sc *scope) (outputs, error) {
	wrong := unusable(s.Proxy, sc.Object)
	if wrong != nil {
		_, _ = s.resolveRefs(ctx, sc)
	}
	return nil, wrong
}

// unusable is Terminal and tells all reasons for which the server is not run; nil if
// there are none.
func unusable(proxy Flavour, srv *server) error {
	problems := specProblems(proxy, srv)
	if len(problems) == 0 {
		return nil
	}
	messages := make([]string, len(problems))
	for i, p := range problems {
		messages[i] = p.Message
	}
	return fsm.Terminal(problems[0].Reason, "%s", strings.Join(messages, "; "))
}
