"""Parses requests and writes replies (RESP). Knows no streams and no sockets."""
