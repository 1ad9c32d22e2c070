"""Publishing from an application: one message or many, deduplicated, later, confirmed by replicas.

It imports store, declare and settle. Start with publishing.py.
"""
