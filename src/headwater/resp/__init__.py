"""Bytes to requests, replies to bytes. Knows no streams and no socket."""
