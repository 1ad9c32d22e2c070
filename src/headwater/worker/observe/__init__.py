"""What is counted, logged and reported about a worker. Nothing here changes what happens to an entry.

It imports declare, leases and settle. Start with telemetry.py.
"""
