"""Planning: counts and splits a range of a stream without reading an entry, with the commands that the server has.

It imports the rest of `headwater.spark.core`. Start with planning.py; planners.py chooses.
"""
