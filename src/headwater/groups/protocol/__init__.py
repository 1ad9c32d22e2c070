"""The protocol between consumers and a store, without I/O: operations, scripts, and the capabilities of a server.

An operation yields commands and receives replies. Two drivers run operations, one of them with asyncio. This room
imports no other. Start with operation.py.
"""
