"""The protocol between consumers and a store, without I/O: operations, scripts, and the capabilities of a server.

An operation yields commands and receives replies; two drivers run it, one of them with asyncio. It imports no other
room. Start with operation.py.
"""
