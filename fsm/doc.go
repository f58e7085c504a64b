// Package fsm loads, validates, binds and runs a machine file.
//
// It knows no cluster. A run takes values (the stored status, the object, the time, an action's result) and returns
// commands (run an action, commit, requeue). Its driver, a controller, a test or a simulation, executes them.
//
// It imports program, which compiles a file, and lint, which Bind calls; nothing below it knows of a run. Begin with
// Run.Next (next.go), then Run.Fire (fire.go); face.go has the names of other packages that a driver needs.
//
//	def, diags := fsm.Load("phases/door.yaml", data)
//	machine, diags := fsm.Bind(def, bindings)
//	run := machine.Run(status, input)
//	for {
//		switch cmd := run.Next(ctx); cmd.Do {
//		case fsm.RunAction:
//			run.Fire(ctx, call) // which looks up cmd.Action
//		case fsm.Commit:
//			store(run.Status())
//			run.Stored(tell) // and start again from what was stored
//		…
package fsm
