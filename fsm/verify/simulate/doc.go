// Package simulate runs a machine without a cluster. A World is a fake API server and driver, with a clock that moves
// only on request. A Scenario is a file with what happens in a world and what is expected of the machine.
//
// The world drives the same fsm.Run as a controller; only the answers of actions and guards are made up. It knows no
// cluster and no program. To run real actions, set World.Respond.
package simulate
