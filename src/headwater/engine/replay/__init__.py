"""Applies recorded facts to a keyspace: at startup, in a checkpoint, for RESTORE.

It calls the same mutators as commands do. It imports image and keyspace. Start with replay.py.
"""
