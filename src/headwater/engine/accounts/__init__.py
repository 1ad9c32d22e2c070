"""The memory that keys, values and Redis's nodes take (INFO memory, MEMORY STATS, maxmemory).

It contains only sums and weights: the owner of the memory reports each change here. It imports no other package of
the engine. Start with memory_account.py.
"""
