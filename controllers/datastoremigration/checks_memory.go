package datastoremigration

import (
	"context"
	"fmt"

	"github.com/phasegate/phasegate/controllers/check"
)

// What the manager needs without any object, and for each: somewhat more than was measured (docs/scale.md).
const (
	memoryFixed = 128 << 20
	memoryEach  = 1536

	mebibyte = 1 << 20
)

// hasMemory finds a manager that would be killed for its memory in the middle of a migration, again
// and again, perhaps under the lock.
func (s *steps) hasMemory(dm *migration) check.Check {
	return check.Check{ID: "memory", Title: "the manager may use as much memory as the objects need", Waivable: true, Run: func(ctx context.Context) ([]check.Finding, error) {
		objects, err := s.copier(dm).Objects(ctx)
		if err != nil {
			return nil, err
		}
		return tooLittleMemory(objects, s.MemoryLimit), nil
	}}
}

func tooLittleMemory(objects, limit int64) []check.Finding {
	needed := memoryFixed + memoryEach*objects
	if needed <= limit {
		return nil
	}
	return []check.Finding{{Level: check.Failure,
		Message: fmt.Sprintf("%d objects need some %d MiB of the manager's memory, and it may use %d MiB (GOMEMLIMIT): it would be killed in the middle, again and again", objects, needed/mebibyte, limit/mebibyte),
		Remedy:  fmt.Sprintf("give it more (Helm: controllers.datastoremigration.resources.limits.memory=%dMi)", needed/mebibyte+1)}}
}
