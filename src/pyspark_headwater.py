"""Lets Spark find Headwater by name: Spark imports every module whose name starts with ``pyspark_``.

If one of these modules fails, Spark's search fails for all of them. So this module only imports.
"""

from headwater.spark.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
