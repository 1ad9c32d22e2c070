"""Settles handled entries: results, acknowledgements, retries and dead letters, many in one call.

It imports store, declare and leases. Start with in_flight.py, which holds every entry until it is settled.
"""
