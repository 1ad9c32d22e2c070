"""The server: nodes, sessions, services, the event loop and its listeners."""
