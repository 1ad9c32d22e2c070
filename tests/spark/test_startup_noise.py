"""A pipeline's standard error has what concerns the run, not what Spark prints while it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAID = r"""
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/23 13:28:46 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...
26/11/23 13:28:47 ERROR Executor: Exception in task 0.0 in stage 0.0
Setting Spark log level to "FATAL".
""".strip()

PROGRAM = """
import subprocess, sys
from headwater.cli.spark_noise import quiet_start
with quiet_start(verbose=sys.argv[1] == "verbose"):
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1])", sys.argv[2]], check=True)
    print("of this process", file=sys.stderr)
print("after it", file=sys.stderr)
"""


def standard_error(mode: str, said: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, mode, said], capture_output=True, text=True, check=True
    ).stderr.splitlines()


def test_lines_of_sparks_start_are_left_out_and_all_others_are_copied() -> None:
    found = standard_error("quiet", SAID + "\n")

    assert sorted(found) == [
        "26/11/23 13:28:47 ERROR Executor: Exception in task 0.0 in stage 0.0",
        "after it",
        "of this process",
    ]


def test_verbose_shows_every_line() -> None:
    found = standard_error("verbose", SAID + "\n")

    assert found == [*SAID.splitlines(), "of this process", "after it"]


def test_a_line_longer_than_the_buffer_is_copied_whole() -> None:
    found = standard_error("quiet", "x" * 100_000 + "\n")

    assert "x" * 100_000 in found


@pytest.mark.spark
@pytest.mark.slice
def test_a_plan_with_spark_writes_nothing_to_standard_error(tmp_path: Path) -> None:
    # Given a pipeline of a file
    (tmp_path / "in.csv").write_text("a\n1\n")
    file = tmp_path / "p.toml"
    file.write_text(
        '[input.a]\npath = "in.csv"\n'
        '[table.t]\nmode = "complete"\nsql = "SELECT * FROM a"\npath = "t"\n'
    )

    # When it is planned by a Spark that starts for it
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "pipeline", "plan", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    # Then nothing but the plan is printed
    assert (done.returncode, done.stderr) == (0, "")
    assert "1. table t: complete" in done.stdout
