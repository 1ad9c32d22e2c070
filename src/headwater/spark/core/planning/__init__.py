"""Planning: counts and splits a range of a stream without transferring entries, with commands that the server has.

This package imports the rest of `headwater.spark.core`. Start with planning.py; planners.py chooses a planner.
"""
