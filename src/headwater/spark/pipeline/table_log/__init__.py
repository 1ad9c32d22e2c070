"""Reads a table that a pipeline writes as a stream: the rows of each of its commits, once.

logs        which files each commit added: the manifest of a Parquet table, the log of a Delta table
positions   up to where a log was read
source      the data source that Spark reads, over positions in such a log
files       the rows of Parquet files, with the columns of the table
"""
