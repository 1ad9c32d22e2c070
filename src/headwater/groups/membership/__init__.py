"""Being a member of a group: creating it, creating it again from its backup, leases, consumers that are gone.

It imports protocol. Start with member.py.
"""
