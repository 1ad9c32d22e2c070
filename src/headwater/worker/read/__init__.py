"""Reading: new entries, claimed ones, ordered ones, suspects; and the end of reading at a stop.

It imports all rooms below it, run included. Start with fetch.py.
"""
