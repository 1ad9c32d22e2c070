"""Reads a pipeline's table as a stream: the rows of each of its commits, once.

logs        the files that each commit added: the manifest of a Parquet table, the log of a Delta table
positions   the position up to which a query has read a log
source      the data source that Spark reads, and the reader of a table's files
"""
