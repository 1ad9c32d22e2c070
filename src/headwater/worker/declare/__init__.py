"""Declarations of an application, and objects for its handlers: consumers, streams, schedules, deliveries, outcomes.

It runs no handlers. It imports `headwater.worker.store` for clocks and connections. Start with declaration.py.
"""
