"""Counts, logs and reports the work of a worker. Nothing here changes the outcome of an entry.

It imports declare, leases and settle. Start with telemetry.py.
"""
