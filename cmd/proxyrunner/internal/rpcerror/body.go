package rpcerror

// MaxBody is the greatest request of a client that is passed on, in bytes, where nobody says.
const MaxBody = 8 << 20
