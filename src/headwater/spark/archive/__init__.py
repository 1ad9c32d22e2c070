"""A stream's history as Parquet files, and readers that combine archive and stream.

files, row_groups    write an archive's Parquet files; read their row groups
contents, manifest   the parts of an archive, and the file that lists them
index                finds the position of an id among the archived entries
archiver, trimming   archive a stream, then trim it
merging, leftovers   merge small files; remove files that are not listed
planning, reading    plan a read in the driver; read in executors
backend, store       connect the archive to the readers of log mode
frames               lets Spark itself read the archived part of a frame
"""
