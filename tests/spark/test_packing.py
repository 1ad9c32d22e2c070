"""Packed environments start and import on a machine that has Python but not Headwater."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.main import app
from headwater.errors import HeadwaterError
from headwater.spark import packing
from tests.spark.cluster import spark_home

pytestmark = pytest.mark.slow

BASE_PYTHON = os.path.realpath(sys.executable)
"""This Python, without its virtual environment."""

SPARKS_PYTHON = [str(path) for path in sorted((spark_home() / "python" / "lib").glob("*.zip"))]
"""The files that Spark puts on the path of its Python processes."""

PACKAGES = ("decoding", "log_mode", "group_mode", "sink", "archive")
"""The packages that executors import."""

IMPORT_ALL = f"""
import importlib, pathlib, pkgutil, sys
import pyspark_headwater, headwater
for package in {PACKAGES!r}:
    found = importlib.import_module("headwater.spark." + package)
    for module in pkgutil.walk_packages(found.__path__, found.__name__ + "."):
        importlib.import_module(module.name)
import headwater.client.sync.connect, headwater.groups.protocol.operation
print(headwater.__file__)
"""


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack without pyarrow, which takes seconds."""
    monkeypatch.setattr(packing, "NEEDED", ("msgspec",))


def unpacked(archive: Path, directory: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
    return directory


def run(python: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as an executor would: in its own directory, with a minimal environment."""
    return subprocess.run(
        [str(python), "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=python.parent,
        env={"PATH": "/usr/bin:/bin"} | environment,
    )


@pytest.mark.slice
def test_everything_that_executors_import_is_packed(tmp_path: Path) -> None:
    packed = packing.pack_environment(tmp_path / "env.tar.gz")
    there = unpacked(packed.path, tmp_path / "there")

    done = run(
        there / "bin" / "headwater-python",
        IMPORT_ALL,
        HEADWATER_PYTHON=BASE_PYTHON,
        PYTHONPATH=os.pathsep.join(SPARKS_PYTHON),
    )

    assert done.stderr == ""
    assert done.stdout.strip() == str(there / "site-packages" / "headwater" / "__init__.py")
    assert packed.bytes == packed.path.stat().st_size


def test_an_environment_may_be_unpacked_anywhere(light: None, tmp_path: Path) -> None:
    packed = packing.pack_environment(tmp_path / "env.tar.gz")
    program = "import msgspec, headwater.spark; print(msgspec.__file__)"
    for name in ("environment", "a directory; with $signs"):
        there = unpacked(packed.path, tmp_path / name)
        done = run(there / "bin" / "python", program, HEADWATER_PYTHON=BASE_PYTHON)
        assert done.stderr == ""
        assert done.stdout.startswith(str(there))


def test_the_same_files_make_the_same_archive(light: None, tmp_path: Path) -> None:
    one = packing.pack_environment(tmp_path / "one.tar.gz").path
    two = packing.pack_environment(tmp_path / "two.tar.gz").path
    assert one.read_bytes() == two.read_bytes()
    one = packing.pack_module(tmp_path / "one.zip").path
    two = packing.pack_module(tmp_path / "two.zip").path
    assert one.read_bytes() == two.read_bytes()


def test_an_archive_has_no_links_and_no_paths_out_of_it(light: None, tmp_path: Path) -> None:
    packed = packing.pack_environment(tmp_path / "env.tar.gz")
    with tarfile.open(packed.path) as opened:
        members = opened.getmembers()
    assert all(member.isfile() for member in members)
    assert {member.name.split("/")[0] for member in members} == {"bin", "site-packages"}
    assert not any(".." in member.name.split("/") for member in members)
    assert len({member.name for member in members}) == len(members) == packed.files


def test_further_distributions_are_packed_with_their_requirements(
    light: None, tmp_path: Path
) -> None:
    packed = packing.pack_environment(tmp_path / "env.tar.gz", also=["Rich"])
    with tarfile.open(packed.path) as opened:
        tops = {name.split("/")[1] for name in opened.getnames()}
    assert {"rich", "markdown_it", "msgspec"} <= tops
    assert "pyspark" not in tops


def test_a_distribution_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match=r"no-such-thing is not installed here.*pip install"):
        packing.pack_environment(tmp_path / "env.tar.gz", also=["no-such-thing"])
    assert list(tmp_path.iterdir()) == []


def test_another_version_of_python_is_refused(light: None, tmp_path: Path) -> None:
    there = unpacked(packing.pack_environment(tmp_path / "env.tar.gz").path, tmp_path / "there")
    other = tmp_path / "python2"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    wanted = "{}.{}".format(*sys.version_info)

    for python in (str(other), "/no/such/python"):
        done = run(there / "bin" / "python", "print(1)", HEADWATER_PYTHON=python)
        assert done.returncode == 127
        assert f"needs Python {wanted}" in done.stderr
        assert "spark.executorEnv.HEADWATER_PYTHON" in done.stderr


def test_the_module_is_plain_python_and_can_be_imported_from_its_zip(tmp_path: Path) -> None:
    packed = packing.pack_module(tmp_path / "headwater.zip")
    with zipfile.ZipFile(packed.path) as opened:
        names = opened.namelist()
    assert {Path(name).suffix for name in names} <= {".py", ".lua", ".toml", ".typed"}
    assert "pyspark_headwater.py" in names
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(packed.path)},
    )
    assert done.stderr == ""
    assert done.stdout.strip() == f"{packed.path}/headwater/__init__.py"


def test_a_file_that_cannot_be_written_is_one_error(light: None, tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="cannot be written: No such file or directory"):
        packing.pack_environment(tmp_path / "nowhere" / "env.tar.gz")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    output, gone = tmp_path / "env.tar.gz", tmp_path / "gone.py"
    with (
        pytest.raises(
            HeadwaterError, match=r"gone\.py cannot be packed: No such file or directory"
        ),
        packing._written_whole(output),
    ):
        gone.read_bytes()
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_how_to_use_its_file(light: None, tmp_path: Path) -> None:
    output = tmp_path / "env.tar.gz"
    done = CliRunner().invoke(app, ["spark", "pack", "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert f'environment="{output}"' in done.output

    done = CliRunner().invoke(app, ["spark", "pack", "--py-files", "--output", str(output)])
    assert f"--py-files {output}" in done.output

    done = CliRunner().invoke(app, ["spark", "pack", "--py-files", "--with", "rich"])
    assert done.exit_code == 2
