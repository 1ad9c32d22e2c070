"""Settles entries: acknowledges them with their results, hands them back, delays, buries and replays them.

It imports the rooms for protocol, membership and reading. Start with settling.py.
"""
