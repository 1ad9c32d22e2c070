"""Log mode: a query reads each entry of its streams once, by ranges of ids, independently of other readers.

    offsets              the offset, which describes a batch
    partitions           the beginning of a query, and the tasks of a batch
    batch, streaming     the readers that Spark calls

Entries are counted by core/planning/ and checked for completeness by core/completeness.py.
"""
