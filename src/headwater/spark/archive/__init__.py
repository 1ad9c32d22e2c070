"""A stream's history as Parquet files, and readers that see archive and stream as one.

What a file holds: files.py; its row groups are read by row_groups.py. What is there: manifest.py, and
where an id stands in it: index.py. Who writes: archiver.py, with trimming.py behind it. Who reads:
planning.py in the driver, reading.py in executors, both through backend.py.
"""
