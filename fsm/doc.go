// Package fsm turns a machine file into a machine that can be stepped: load,
// validate, bind to named actions and guards, and run.
//
// It knows no cluster. A run is fed values (the stored status, the object as
// unstructured data, the time, the outcome of an action) and answers with
// commands (run an action, commit, requeue); whoever drives it does the work and stores
// the status. The same run can therefore be driven by a controller, by a test
// or by a simulation.
//
// It imports program, which compiles a file, and lint, which Bind asks besides; nothing below it knows of a run. Begin
// with Run.Next (next.go), then Run.Fire (fire.go); face.go has the names of other packages that a driver needs.
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
