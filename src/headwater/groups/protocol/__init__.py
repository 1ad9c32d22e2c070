"""The protocol between consumers and a store, without I/O: operations, scripts, and the capabilities of a server.

An operation yields commands and receives replies. Two drivers run operations, one of them with asyncio. The
package imports no other package of groups. Start with operation.py.
"""
