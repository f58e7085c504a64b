package datastoremigration

import "context"

func (s *steps) detachV1Owners(_ context.Context, _ *scope) (outputs, error) { return nil, nil }

func (s *steps) attachV1Owners(_ context.Context, _ *scope) (outputs, error) { return nil, nil }
