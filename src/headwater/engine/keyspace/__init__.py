"""The databases of a store, their keys and values, and all that is due or garbage.

It imports streams. Start with keyspace.py, the root of the state; database.py has the keys.
"""
