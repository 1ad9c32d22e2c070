"""The commands on strings, lists, sets and hashes, for the small values that programs with streams need.

Each type has a module. `typed` treats keys of another type and expired keys alike for all of them.
"""
