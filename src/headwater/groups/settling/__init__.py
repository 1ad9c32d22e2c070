"""Settles entries: acknowledges them with their results, hands them back, delays, buries and replays them.

It imports protocol, membership and reading. Start with settling.py.
"""
