"""What a node keeps on disk: checkpoints, segments, sealing, and reads of entries that are not in memory.

Threads of it compress, copy and read; all changes of the state are made under the node's lock. Start with storage.py.
"""
