package runner

import "k8s.io/apimachinery/pkg/types"

// Unfit makes an error one that a person has to repair.
func Unfit(err error) error { return unfitError{err} }

// SetTurns bounds the calls outwards.
func (r *Reconciler[T]) SetTurns(n int) { r.semaphore = Limits{ExternalCalls: n}.semaphore() }

// OccupyTurn is another object that calls outwards, until free is called.
func (r *Reconciler[T]) OccupyTurn() (free func()) {
	r.semaphore.take(types.NamespacedName{Name: "another"})
	return r.semaphore.done
}
