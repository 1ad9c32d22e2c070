"""What an application declares and what its handlers get: consumers, streams, schedules, limits, deliveries, outcomes.

It runs nothing. It imports `headwater.worker.store` for clocks. Start with declaration.py.
"""
