"""Interfaces that streams, groups and databases share, so that they need not import each other.

The interfaces are the keyspace without its databases, the clients that a change of a key concerns, and a stream
as its groups see it. They import entries, tier, redis_nodes, accounts, facts. Start with keyspace_state.py.
"""
