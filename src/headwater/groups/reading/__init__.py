"""Which entries a member gets: new ones, idle ones that it claims, in order, within limits, and no poison.

It imports protocol and membership. Start with claiming.py.
"""
