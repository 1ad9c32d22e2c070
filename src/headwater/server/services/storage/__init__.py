"""The storage of a node on disk: checkpoints, segments, sealing, and reads of entries that are not in memory.

Its threads compress, copy and read. All changes of the state are made under the node's lock. Start with storage.py.
"""
