"""Reads new entries, claimed ones, ordered ones and suspects, and ends reading at a stop.

It imports all rooms below it, run included. Start with fetch.py.
"""
