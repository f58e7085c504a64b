// Package copier carries the objects of every kind of the registry from v1 to v3 through the API
// server, compares both sides, and takes its own copies away again.
//
// Each call is idempotent and keeps nothing that the next one needs: after a crash the same call does
// what is left. What an object becomes and when two objects are equal is decided in package resources;
// this package only acts. It must not know phases, locks or the migration's own resource beyond its
// name and UID. A v1 object is never written.
//
//	c := copier.New(resources.Default(), liveClient, copier.Owner{Name: dm.Name, UID: dm.UID})
//	plan, err := c.Plan(ctx, true, nil)    // before anything is locked: plan.Problems must be empty
//	result, err := c.Copy(ctx, show)       // result.Conflicts and result.Rejected name what is open
//	owners, err := c.RemapOwners(ctx)      // adds the owners that were not in v3 yet
//	both, err := c.Verify(ctx)             // both.OK() before anybody relies on v3
//	gone, err := c.DeleteCopies(ctx, false, nil)  // or back again, until gone.Remaining is empty
package copier
