"""Membership of a group: creating it, creating it again from its backup, leases, removing unused consumers.

It imports protocol. Start with member.py.
"""
