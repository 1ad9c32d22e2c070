"""Shared by all readers and writers: options, the server, positions in streams, completeness.

    options, option_values   the source's options, and how each value is parsed
    store                    the commands that planning sends to the server
    replies                  normalises what redis-py returns
    positions, ranges        positions and spans in a stream, and its state; what one task reads
    completeness             what a stream's counters show about missing entries
    planning                 counts and splits a range without reading an entry
    queries                  how far each query in log mode has committed
    ddl                      parses a schema's text
    durable                  files that survive a power loss

Only ``ranges`` and ``ddl`` import pyspark.
"""
