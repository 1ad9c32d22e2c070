"""The settings of a cluster's session for the Python that executors run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import headwater.spark
from headwater.errors import HeadwaterError
from headwater.spark import sessions
from headwater.spark.packing import LAUNCHER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No JVM, and environment variables that are restored."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    return monkeypatch


def packed(tmp_path: Path) -> Path:
    path = tmp_path / "an env.tar.gz"
    path.touch()
    return path


def test_one_command_starts_this_python_here_and_the_packed_one_on_executors(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = sessions._packed(packed(tmp_path), {}, submitted=False)

    assert settings["spark.archives"] == f"file://{tmp_path}/an%20env.tar.gz#environment"
    assert settings["spark.executorEnv.PATH"].startswith("./environment/bin:")
    assert os.environ["PYSPARK_PYTHON"] == LAUNCHER
    here = shutil.which(LAUNCHER)
    assert here is not None
    said = subprocess.run(
        [here, "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.strip() == sys.executable


def test_archives_in_the_configuration_are_kept_and_used(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = {"spark.archives": "/data/model.zip#model,/env.tar.gz#environment"}
    settings = sessions._packed(None, config | {"spark.executorEnv.PATH": "/x"}, submitted=False)
    assert settings == config | {"spark.executorEnv.PATH": "/x"}

    assert (
        sessions._packed(None, {"spark.archives": "/data/model.zip#model"}, submitted=False) == {}
    )
    assert sessions._packed(None, {}, submitted=True) == {}


def test_a_missing_environment_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"env\.tar\.gz is not a file; headwater spark pack"):
        sessions._packed(tmp_path / "env.tar.gz", {}, submitted=False)


def test_spark_submit_needs_the_environment_itself(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"spark-submit started Spark before"):
        sessions._packed(packed(tmp_path), {}, submitted=True)


def test_an_unreachable_cluster_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark raises this error a minute later, for a context that its JVM has given up."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import SparkContext

    # Given a master that does not answer
    class Stopped(Py4JJavaError):  # type: ignore[misc]
        def __str__(self) -> str:
            return (
                "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
                ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n"
                "This stopped SparkContext was created at:"
            )

    ended: list[str] = []
    context = SimpleNamespace(stop=lambda: ended.append("context"))
    before = SparkContext._active_spark_context

    def start() -> SparkSession:
        monkeypatch.setattr(SparkContext, "_active_spark_context", context)
        raise Stopped("", SimpleNamespace(_target_id="o1"))

    # When a session is created
    with pytest.raises(HeadwaterError) as raised:
        sessions._started(cast("Any", SimpleNamespace(getOrCreate=start)), "spark://host:7077")
    monkeypatch.setattr(SparkContext, "_active_spark_context", before)

    # Then no stack is shown, and the next session does not get the context that failed
    assert str(raised.value) == (
        "Spark did not start on spark://host:7077: IllegalStateException: Cannot call methods on a stopped "
        "SparkContext. "
        "Is the master running there, and can it be reached from here?"
    )
    assert raised.value.__suppress_context__
    assert ended == ["context"]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_running_jvm_cannot_get_an_environment(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="Create this session first, in a new process"):
        sessions._packed(packed(tmp_path), {}, submitted=False)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_source_learns_how_many_tasks_the_session_runs(spark: SparkSession) -> None:
    given = {"stream": "s"}

    assert sessions.with_parallelism(given, spark) == given | {"parallelism": "2"}
    assert sessions.with_parallelism({"Parallelism": "9"}, spark) == {"Parallelism": "9"}


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_running_session_gets_the_setting_for_pushdown(spark: SparkSession) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    try:
        assert headwater.spark.session() is spark
        assert spark.conf.get(name) == "true"
    finally:
        spark.conf.unset(name)
