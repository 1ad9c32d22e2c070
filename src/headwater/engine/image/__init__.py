"""The state as bytes: images (checkpoints), and the part of one that is written while commands go on.

It imports keyspace. Start with image.py.
"""
