"""Parses requests and writes replies (RESP). This package depends neither on streams nor on sockets."""
