"""The connections of a worker to its store, for reading, settling and leases. Clocks and waiting.

It does not know messages. It imports no other room. Start with connections.py.
"""
