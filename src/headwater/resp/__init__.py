"""Parses requests and writes replies (RESP). It depends neither on streams nor on sockets."""
