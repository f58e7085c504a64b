package fsm

// ReasonCreated is the reason of the first transition of an object that is new.
const ReasonCreated = "Created"
