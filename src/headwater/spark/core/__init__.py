"""Shared by all readers and writers: options, the server, positions in streams, completeness.

    options, option_values   the source's options, and how each value is parsed
    store                    the commands that planning sends to the server
    replies                  normalises redis-py's replies
    positions, ranges        positions, spans and the state of a stream; the ranges of one task
    completeness             detects missing entries by a stream's counters
    planning                 counts and splits a range without transferring entries
    queries                  the id up to which each query in log mode has committed
    ddl                      parses a schema in DDL
    durable                  files that survive a power loss

Only ``ranges`` and ``ddl`` import pyspark when they are imported.
"""
