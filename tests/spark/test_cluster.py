"""A standalone cluster: a master and a worker on which Headwater is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.spark import packing
from headwater.spark.java import java_home
from headwater.testing.server import server_process
from tests.spark.cluster import Cluster, spark_home, standalone_cluster
from tests.spark.stores import Shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slice,
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.timeout(400),
]

BASE_PYTHON = os.path.realpath(sys.executable)
ROWS = 150_000
"""Read twice by two processes, enough for one of them to warn that it is slow."""

PROGRAM = """
import json, sys
from pathlib import Path

url, place = sys.argv[1], Path(sys.argv[2])
{session}
import headwater.spark

def where(_number):
    # An executor imports a module of the packed environment.
    import headwater
    return headwater.__file__

rows = headwater.spark.read(spark, "s", url=url, schema="n bigint").agg({{"n": "sum"}}).collect()
stream = headwater.spark.read_stream(spark, "s", url=url, schema="n bigint")
query = (
    stream.writeStream.format("parquet").option("path", str(place / "copy"))
    .option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
)
query.awaitTermination()
copied = spark.read.parquet(str(place / "copy")).count()
files = spark.sparkContext.parallelize([1]).map(where).collect()
(place / "said.json").write_text(json.dumps([rows[0][0], copied, files]))
spark.stop()
"""

BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""
"""The session of a program that spark-submit runs."""


@pytest.fixture(scope="module")
def store() -> Iterator[Shop]:
    import redis

    with (
        server_process("--appendfsync", "no") as server,
        redis.Redis.from_url(server.url, protocol=2) as client,
    ):
        made = Shop("headwater", server.url, client)
        for begin in range(1, ROWS, 10_000):
            made.add("s", range(begin, begin + 10_000))
        yield made


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a python3 that has Headwater's dependencies, but not Headwater."""
    import importlib.util

    directory = tmp_path_factory.mktemp("executor")
    (directory / "lib").mkdir()
    for name in ("redis", "hiredis", "msgspec", "google_crc32c", "pyarrow"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        (directory / "lib" / name).symlink_to(home)
    python = directory / "python3"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={directory}/lib${{PYTHONPATH:+:$PYTHONPATH}} exec {BASE_PYTHON} "$@"\n'
    )
    python.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def cluster(dependencies: Path) -> Iterator[Cluster]:
    with standalone_cluster(path=f"{dependencies}:/usr/bin:/bin") as made:
        yield made


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packing.pack_environment(tmp_path_factory.mktemp("packed") / "headwater-env.tar.gz").path


def run(
    command: list[str], place: Path, session: str, store: Shop, **environment: str
) -> list[Any]:
    """Run the program as a driver process; return its result."""
    place.mkdir()
    (place / "app.py").write_text(PROGRAM.format(session=session))
    done = subprocess.run(
        [*command, str(place / "app.py"), store.url, str(place)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    said: list[Any] = json.loads((place / "said.json").read_text())
    return said


def test_executors_run_in_the_packed_environment(
    cluster: Cluster, store: Shop, packed: Path, tmp_path: Path
) -> None:
    session = f"""
import headwater.spark
spark = headwater.spark.session(
    master={cluster.master!r},
    environment={str(packed)!r},
    config={{"spark.executorEnv.HEADWATER_PYTHON": {BASE_PYTHON!r}}},
)
"""
    total, copied, files = run([sys.executable], tmp_path / "run", session, store)

    assert (total, copied) == (ROWS * (ROWS + 1) // 2, ROWS)
    (file,) = files
    assert file.startswith(str(cluster.directory))
    assert file.endswith("/environment/site-packages/headwater/__init__.py")


def test_spark_submit_uses_an_environment_that_is_unpacked_in_its_directory(
    cluster: Cluster, store: Shop, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "environment", filter="data")
    monkeypatch.chdir(tmp_path)
    total, copied, files = run(
        [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", cluster.master, "--archives", f"{packed}#environment"),
            *("--conf", f"spark.executorEnv.HEADWATER_PYTHON={BASE_PYTHON}"),
            *("--conf", "spark.ui.enabled=false"),
        ],
        tmp_path / "run",
        BARE,
        store,
        JAVA_HOME=str(java_home()),
        HEADWATER_PYTHON=BASE_PYTHON,
        PYSPARK_PYTHON="./environment/bin/python",
    )

    assert (total, copied) == (ROWS * (ROWS + 1) // 2, ROWS)
    (file,) = files
    assert "/environment/" in file
    assert "/site-packages/headwater/" in file


def test_a_module_from_py_files_reads_with_the_plain_decoder_and_warns(
    cluster: Cluster, store: Shop, tmp_path: Path
) -> None:
    packed = packing.pack_module(tmp_path / "headwater.zip")
    bin_directory = Path(sys.executable).parent
    total, copied, files = run(
        [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", cluster.master, "--py-files", str(packed.path)),
            *("--conf", "spark.ui.enabled=false"),
        ],
        tmp_path / "run",
        BARE,
        store,
        JAVA_HOME=str(java_home()),
        PATH=f"{bin_directory}:{os.environ['PATH']}",
    )

    assert (total, copied) == (ROWS * (ROWS + 1) // 2, ROWS)
    (file,) = files
    assert "headwater.zip/headwater/__init__.py" in file
    assert "headwater spark pack" in cluster.logs()
