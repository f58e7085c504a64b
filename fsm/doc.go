// Package fsm loads, validates, binds and runs a machine file.
//
// It knows no cluster. A run takes values (the stored status, an observation of the object, what an action came to) and
// answers decisions (call an action, store this, come back then). Its driver, a controller, a test or a simulation, carries
// them out.
//
// It imports program, which compiles a file, and lint, which Bind calls; nothing below it knows of a run. Begin with
// Run.Decide (decide.go), then Run.Apply (events.go); face.go has the names of other packages that a driver needs.
//
//	def, diags := fsm.Load("phases/door.yaml", data)
//	machine, diags := fsm.Bind(def, bindings)
//	run := machine.Run(status, observation)
//	for {
//		switch d := run.Decide(ctx); d.Do {
//		case fsm.RunAction:
//			run.Apply(ctx, call) // which looks up d.Action
//		case fsm.Commit:
//			store(run.Status())
//			tell(d.Transition) // and start again from what was stored
//		…
package fsm
