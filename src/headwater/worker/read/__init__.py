"""Reads entries: new, claimed, ordered and suspected ones. Ends reading at a stop.

It imports all rooms below it, run included. Start with fetch.py.
"""
