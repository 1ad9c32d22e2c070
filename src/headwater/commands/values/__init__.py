"""The other types: what clients of streams keep beside them, a small value here and there.

A type has a file. What a command of a type does to a key of another type, and to one whose time has
come, is the same for all (`typed.py`).
"""
