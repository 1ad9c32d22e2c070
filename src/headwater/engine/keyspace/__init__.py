"""The databases of a store: their keys and values, due times, and garbage.

It imports streams. Start with keyspace.py, the root of the state; database.py has the keys.
"""
