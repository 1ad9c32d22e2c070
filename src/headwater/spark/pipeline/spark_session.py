"""The Spark session in which a pipeline runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headwater.errors import HeadwaterError
from headwater.spark.embedded import refuse_cluster
from headwater.spark.pipeline.declaration.model import Pipeline
from headwater.spark.pipeline.errors import reason
from headwater.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_LEVEL: Final = "spark.log.level"
_PYSPARKS_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers that print Spark's errors about SQL with a JVM stack."""


def start_spark(pipeline: Pipeline, *, master: str | None = None) -> SparkSession:
    """Return the session for ``pipeline``.

    Raises the errors of `session`, and `HeadwaterError` for an embedded store on a cluster; Spark is then not
    started.
    """
    master = master or pipeline.master
    _refuse_embedded(pipeline, master or pipeline.conf.get("spark.master", "local[*]"))
    # An error that ends a run is raised as one sentence. Otherwise the JVM would also print the error in a
    # hundred lines, and PySpark would print the JVM's text.
    config = {_LOG_LEVEL: "FATAL"} | pipeline.conf
    spark = session(app=pipeline.app, master=master, config=config)
    spark.sparkContext.setLogLevel(config[_LOG_LEVEL])
    if _LOG_LEVEL not in pipeline.conf:
        from pyspark.logger import PySparkLogger

        for name in _PYSPARKS_LOGGERS:
            PySparkLogger.getLogger(name).setLevel("CRITICAL")
    return spark


def _refuse_embedded(pipeline: Pipeline, master: str) -> None:
    urls = {f"source.{name}": one.options["url"] for name, one in pipeline.sources.items()}
    urls |= {
        f"table.{name}": one.target.url
        for name, one in pipeline.tables.items()
        if one.target.url is not None
    }
    for place, url in urls.items():
        try:
            refuse_cluster(url, master)
        except HeadwaterError as error:
            raise reason(pipeline, place, error) from None
