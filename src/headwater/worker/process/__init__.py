"""The processes of ``headwater work``: the supervisor, its children, reloading, and the store of a directory.

Nothing imports it but the command line. Start with supervise.py.
"""
