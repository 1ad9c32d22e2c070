"""Reports of the entries that a group has not settled: pending, held, limited, hung, expired, trimmed.

Nothing here changes an entry. It imports protocol and membership. Start with pending.py.
"""
