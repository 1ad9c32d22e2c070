"""What every reader and writer builds on: options, the server, places in streams, completeness.

    options, option_values   what a source may be told, and how each value is read
    store                    the commands that planning sends to the server
    replies                  what redis-py returns, in one form
    ids, positions, ranges   neighbours of an id; places and spans in a stream; what one task reads
    state, completeness      a stream's counters, and what they say of entries that are missing
    planning                 counts and cuts of a range, without reading an entry
    queries                  how far each query in log mode has committed
    ddl                      a schema's text
    durable                  files that survive a power loss

Only ``ranges`` and ``ddl`` import pyspark.
"""
