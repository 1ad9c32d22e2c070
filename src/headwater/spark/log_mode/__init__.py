"""Log mode: a query reads each entry of its streams once, by ranges of ids, independent of other readers.

    offsets              what a batch is
    partitions           where a query begins, and into how many tasks a batch is split
    backend              where entries come from
    batch, streaming     the readers that Spark calls

Entries are counted by core/planning.py and checked for completeness by core/completeness.py.
"""
