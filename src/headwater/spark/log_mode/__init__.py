"""Log mode: a query reads each entry of its streams once, by ranges of ids, beside whoever else reads.

What a batch is: offsets.py. Whether something is missing: completeness.py. Where a batch ends and
how it is cut: planning.py, partitions.py. What Spark calls: batch.py, streaming.py.
"""
