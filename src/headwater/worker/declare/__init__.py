"""Declarations of an application, and objects for its handlers: consumers, streams, schedules, deliveries, outcomes.

It runs nothing. It imports `headwater.worker.store` for clocks. Start with declaration.py.
"""
