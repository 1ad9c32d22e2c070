"""The commands on strings, lists, sets and hashes, for the small values that programs use alongside streams.

Each type has a module. `typed` handles keys of another type and expired keys for all of them.
"""
