"""Interfaces that streams, groups and databases share, so that they need not import each other.

The keyspace as they see it, the clients that a change of a key concerns, and the stream as its groups see it. It
imports entries, tier, Redis's nodes, accounts and facts. Start with keyspace_state.py.
"""
