"""Runs handlers: slots, threads, pools of processes, batches, limits and expiry.

It imports store, declare, leases, settle and observe. Start with execute.py; pool.py has the slots.
"""
