package mcpserver

import (
	"context"
	"errors"
)

func (s *steps) checkSpec(ctx context.Context, sc *scope) (outputs, error) {
	return nil, errors.New("being built")
}
