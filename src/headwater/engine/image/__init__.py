"""The state as bytes (images), and snapshots of streams for threads that read them while commands run.

It imports keyspace. Start with image.py.
"""
