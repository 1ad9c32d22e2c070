"""Renews the leases of a process, which shows that it lives. The process does so, or its supervisor for it.

It imports store and declare. Start with lease.py.
"""
