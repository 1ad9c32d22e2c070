"""What a group has not settled and why, for reports: pending, held, limited, hung, expired, trimmed.

Nothing here changes an entry. It imports protocol and membership. Start with pending.py.
"""
