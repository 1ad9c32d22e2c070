"""Log mode: a query reads each entry of its streams once, by ranges of ids, beside whoever else reads.

What a batch is: offsets.py. Where a query begins and how a batch is cut: partitions.py, by the counts
of core/planning.py. Whether something is missing: core/completeness.py. Where entries come from:
backend.py. What Spark calls: batch.py, streaming.py.
"""
