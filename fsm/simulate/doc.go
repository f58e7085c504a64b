// Package simulate runs a machine without a cluster: a World plays the API server, the
// driver and all that actions and guards touch, over a clock that moves only when
// it is told to; a Scenario is a file that says what happens in a world and what
// is expected of the machine.
//
// Nothing that a machine does is simulated: the world drives the same fsm.Run as
// a controller does. Only what its actions and guards answer is made up. It knows
// no cluster and no program; whoever runs real actions in a world sets
// World.Respond.
package simulate
