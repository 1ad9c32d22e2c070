"""Python processes of a local Spark import its modules with their bytecode, not from a zip file."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.spark import home as homes
from headwater.spark.home import spark_home
from headwater.spark.sessions import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def where(module: str) -> str:
    """Return the file of a module in this process."""
    return str(importlib.import_module(module).__file__)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_workers_import_pyspark_and_py4j_from_directories(spark: SparkSession) -> None:
    modules = ["pyspark.worker", "py4j.java_gateway"]

    found = spark.sparkContext.parallelize(modules, 1).map(where).collect()

    assert all(Path(name).is_file() for name in found), found


def test_a_home_is_made_once_and_again_if_a_link_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Given a home
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = spark_home()
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert (home / "python/lib/pyspark.zip/pyspark/worker.py").is_file()
    made = home.stat().st_ino
    assert spark_home() == home
    assert home.stat().st_ino == made
    # When a link is missing
    (home / "jars").unlink()
    # Then it is made again, and nothing else is left
    assert spark_home() == home
    assert (home / "jars").is_dir()
    assert list(home.parent.iterdir()) == [home]


def test_the_home_of_another_version_of_spark_stays_for_the_sessions_that_use_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Given a home
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = spark_home()
    assert home is not None
    # When a version of Spark in the same place has another file
    links_before = homes._links
    monkeypatch.setattr(homes, "_links", lambda of: {**links_before(of), "NEW": of / "bin"})
    # Then it has a home of its own
    other = spark_home()
    assert other is not None
    assert other != home
    assert (other / "NEW").is_dir()
    assert (home / "jars").is_dir()


def test_without_links_spark_keeps_its_own_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_of: object, **_how: object) -> None:
        raise PermissionError("links need a privilege here")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "symlink_to", refused)

    assert spark_home() is None
    assert not list((tmp_path / "headwater").iterdir())


def test_a_users_spark_home_is_kept_and_ours_is_not_used_for_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = str(tmp_path / "spark")
    monkeypatch.setenv("SPARK_HOME", own)
    prepare_environment(local=True)
    assert os.environ["SPARK_HOME"] == own
    prepare_environment(local=False)
    assert os.environ["SPARK_HOME"] == own
    monkeypatch.delenv("SPARK_HOME")
    prepare_environment(local=True)
    assert os.environ["SPARK_HOME"] == str(spark_home())
    prepare_environment(local=False)
    assert "SPARK_HOME" not in os.environ
