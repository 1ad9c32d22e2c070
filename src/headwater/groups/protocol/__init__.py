"""How consumers talk to a store without I/O of their own: operations, scripts, and what a server is able to do.

An operation yields commands and receives replies; two drivers run it, one of them with asyncio. It imports no other
room. Start with operation.py.
"""
