"""What streams, groups and databases share, so that they need not import each other.

The keyspace as they see it, whom a change of a key concerns, and what a group sees of its stream. It imports entries,
tier, Redis's nodes, accounts and facts. Start with keyspace_state.py.
"""
