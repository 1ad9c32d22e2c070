"""Lets Spark find Headwater by name: it imports every module that is called ``pyspark_*``.

One such module that fails breaks Spark's search for all of them, so there is nothing here that can.
"""

from headwater.spark.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
