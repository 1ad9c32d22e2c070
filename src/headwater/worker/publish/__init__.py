"""Publishes from an application: one message or many, deduplicated, at a later time, confirmed by replicas.

It imports store, declare and settle. Start with publishing.py.
"""
