"""The command line prints what is installed, and one line for an error."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwater
from headwater.cli import info, main
from headwater.errors import JavaMissing, StoreInUse


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_info_names_versions_extras_and_java() -> None:
    done = run("info")
    assert done.returncode == 0, done.stderr
    first = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert headwater.__version__ in first["headwater"]
    assert "redis" in first["core"]
    assert first.keys() >= {"python", "hot", "spark", "demo", "java"}


def test_info_short_is_one_line() -> None:
    done = run("info", "--short")
    assert done.stdout.startswith(f"headwater {headwater.__version__}, ")
    assert len(done.stdout.splitlines()) == 1


def test_info_marks_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise JavaMissing("install one")

    monkeypatch.setattr("headwater.spark.java.find_java", no_java)
    assert info.java() == "(missing) install one"
    assert info.version_of("no-such-distribution") == "(missing)"


def test_version_prints_the_version() -> None:
    assert run("--version").stdout == f"headwater {headwater.__version__}\n"


def test_an_unknown_command_is_status_2_with_a_suggestion() -> None:
    done = run("inf")
    assert done.returncode == 2
    assert "Did you mean 'info'?" in done.stderr


def test_a_headwater_error_is_one_line_and_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a command that raises an error of Headwater
    def failing() -> None:
        raise StoreInUse("the directory data is held by process 7; stop it first")

    monkeypatch.setattr(info, "info", failing)
    # When it is run
    with pytest.raises(SystemExit) as ended:
        main.main(["info"])
    # Then it prints one line and no traceback
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert printed == "headwater: the directory data is held by process 7; stop it first\n"
