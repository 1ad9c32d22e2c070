"""Network I/O: moves bytes between sockets and sessions. `headwater.server.running` starts it."""
