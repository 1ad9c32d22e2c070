"""The processes of ``headwater work``: the supervisor, its children, reloading, and the store of a directory.

Only the command line imports it. Start with supervise.py.
"""
