"""Renews the leases of a process, to show that it is alive. The process renews them, or its supervisor does.

It imports store and declare. Start with lease.py.
"""
