"""The memory that keys, values and Redis's nodes take (INFO memory, MEMORY USAGE, maxmemory).

Only sums and weights: the owner of the memory reports each change here. It imports no other room. Start with
memory_account.py.
"""
