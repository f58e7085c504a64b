// Package copier copies the objects of every kind of the registry from v1 to v3 through the API server, compares both
// sides, and deletes its own copies.
//
// Each call is idempotent: after a crash, the same call does the rest. Package resources decides what an object becomes
// and when two are equal. Of this repository, copier imports resources and api alone. It must not know phases, locks,
// or the migration's resource beyond its UID. It writes v1 objects only for barriers and by Editor.
//
//	c := copier.New(resources.Default(), liveClient, dm.UID)
//	plan, err := c.Plan(ctx, true)         // before anything is locked: plan.Problems must be empty
//	result, err := c.Copy(ctx, show)       // result.Conflicts and result.Rejected name what is open
//	owners, err := c.RemapOwners(ctx)      // adds the owners that were not in v3 yet
//	both, err := c.Verify(ctx)             // both.OK() before anybody relies on v3
//	gone, err := c.DeleteCopies(ctx, false)  // or back again, until gone.Remaining is empty
//
// Where to read, in this order; each type owns its state, and what decides is in classify.go, without a client:
//
//	copier.go, result.go            the parts, the options, and what the calls return
//	requests.go, list.go            api: one request, tried again, and lists of one side of a kind
//	source.go, digest.go, space.go  Source: what v1 holds, its digest, its size
//	index.go                        what is known of a v3 object; whose it is
//	classify.go, ask.go             rules: same, changed, edited, altered, being deleted; asker: what admission would do
//	sides.go, equality_cache.go     pairs: both sides of a kind, of which what is proved is not read again
//	copy.go, write.go               copying: kinds in their order; writer: create first, then amend
//	notebook.go, terminating.go,    what the workers find, how far they are, what is being deleted in v1,
//	progress.go, owners.go          and where each owner went
//	verify.go, verify_kind.go,      comparer: where the sides differ;
//	remap.go, plan.go               owners that came later; a copy without writes
//	copies.go, amend.go,            Copies: what bears our mark is deleted, or loses it;
//	trywrites.go, handover.go       whether that would be let, and whose fields they are in the end
//	snapshot.go, watch.go,          Snapshot: v1 while nobody writes it; Watcher and replica: both sides without
//	replica.go                      lists
//	editor.go                       Editor: metadata of any kind
package copier
