"""Chooses the entries that a member gets: new ones and claimed ones, in order, within limits, without poison.

It imports protocol and membership. Start with claiming.py.
"""
