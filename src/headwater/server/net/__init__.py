"""Sockets: bytes in and out of sessions. `headwater.server.running` starts it."""
