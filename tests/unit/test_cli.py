"""The command line prints what is installed, and one line for an error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headwater
from headwater.cli import info, main, progress
from headwater.cli.progress import Busy
from headwater.common.moments import length_ms, milliseconds_of
from headwater.errors import JavaMissing, StoreInUse


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_info_names_versions_extras_and_java() -> None:
    done = run("info")
    assert done.returncode == 0, done.stderr
    first = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert headwater.__version__ in first["headwater"]
    assert "redis" in first["core"]
    assert first.keys() >= {"python", "hot", "spark", "demo", "java"}


@pytest.mark.slow
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


WRONG = {
    "nothing": "No such command 'nothing'",
    "lag": "Missing argument 'STREAM'",
    "lag s --bogus": "No such option",
    "lag s --max 5": "is not a duration",
    "lag s --max 400d": "at most 366 days",
    "explain s g x": "is not the id of an entry",
    "explain --window soon": "is not a duration",
    "tail s --from yesterday": "is not a time",
    "tail s --where n": "is not a condition",
    "tail s -n -1": "is not in the range",
    "add s n": "write FIELD=VALUE",
    "pending list s --count 0": "is not in the range",
    "pending show s g x": "is not the id of an entry",
    "pending ack s g": "nothing is selected",
    "pending ack s g 1-1 --all": "--all selects everything",
    "pending ack s g 1-x": "is not the id of an entry",
    "pending release s g --idle 5x": "is not a duration",
    "retries run s g": "name ids, or use --all",
    "consumers list s g --unseen x": "is not a duration",
    "dead list s --after x": "is not the id of a dead letter",
    "dead drop s": "name at least one dead letter",
    "dead drop s 1-x": "is not the id of a dead letter",
    "groups reset s g": "give one of --to and --back",
    "groups reset s g --to soon": "is not a time",
    "streams trim s": "give one of --maxlen and --minid",
    "streams trim s --minid soon": "is not a time",
    "restore d --to e --at soon": "is not a time",
    "restore d --to e --at 2026-11-23T09:30:00": "has no time zone",
    "journal dump d --from soon": "is not a time",
    "exporter --listen x": "is not HOST:PORT",
    "work a:b --grace x": "is not a duration",
    "pipeline replay f.toml": "choose what to replay",
    "tail s --from 2026-11-23": "has no time zone",
    "groups reset s g --to 2026-11-23": "has no time zone",
    "streams trim s --minid 2026-11-23": "has no time zone",
    f"tail s -n {2**63}": "is not in the range",
    f"streams trim s --maxlen {2**63}": "is not in the range",
    "pending claim s g 1-1 --to=": "--to is empty",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_is_status_2_and_says_what_is_wrong(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(line.split())
    assert ended.value.code == 2
    assert WRONG[line] in capsys.readouterr().err


def closed(redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``headwater …`` in a shell with these redirections, such as ``>&-``."""
    program = [sys.executable, "-m", "headwater.cli.entry", *arguments]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_without_standard_streams(redirections: str) -> None:
    # Given an existing store and closed streams, when a command prints a table, then it works
    done = closed(redirections, "streams", "list", "--url", "headwater://memory")
    assert (done.returncode, done.stderr) == (0, "")
    # And an error is not printed to standard output instead
    done = closed(redirections, "streams", "list", "--url", "headwater:///no/such")
    assert (done.returncode, done.stdout) == (1, "")
    assert ("there is no directory" in done.stderr) == ("2>" not in redirections)


def test_a_question_without_standard_input_has_no_answer(tmp_path: Path) -> None:
    # Given a store with an entry
    url = f"headwater://{tmp_path / 'data'}"
    with headwater.connect(url) as client:
        client.xadd("s", {"n": 1})
    # When a command asks and there is no standard input, then nothing is changed
    done = closed("<&-", "streams", "trim", "s", "--maxlen", "0", "--url", url)
    assert done.returncode == 1
    assert "nothing was changed: no answer; --yes skips the question" in done.stderr
    with headwater.connect(url) as client:
        assert client.xlen("s") == 1


def test_an_output_that_cannot_be_written_is_named() -> None:
    # Given a full disk, when a command prints to it
    done = closed(">/dev/full", "streams", "list", "--url", "headwater://memory")
    # Then the error says what cannot be written
    assert done.returncode == 1
    assert done.stderr == (
        "headwater: the output cannot be written: [Errno 28] No space left on device. "
        "An action may have been done.\n"
    )


@pytest.mark.slow
def test_names_are_printed_as_their_bytes_in_every_locale(tmp_path: Path) -> None:
    # Given names in other scripts, and a locale without them
    url = f"headwater://{tmp_path / 'data'}"
    with headwater.connect(url) as client:
        client.xadd("漢字", {"n": 1})
    for form in ("table", "json", "csv"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "headwater.cli.main",
                "streams",
                "list",
                "--url",
                url,
                "-o",
                form,
            ],
            capture_output=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        )
        # Then they are printed
        assert (done.returncode, done.stderr) == (0, b"")
        assert "漢字" in done.stdout.decode()


def test_ctrl_c_is_status_130_and_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a command, and a question, at which Ctrl-C is pressed
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "info", interrupted)
    # When it is run
    with pytest.raises(SystemExit) as ended:
        main.main(["info"])
    # Then it ends without a traceback
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


def test_ctrl_c_says_what_was_done_and_counts_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a long command that has found more than it expected when Ctrl-C is pressed
    def interrupted() -> None:
        with Busy("files read") as progress:
            progress("files read", 5, 3)
            raise KeyboardInterrupt

    monkeypatch.setattr(info, "info", interrupted)
    # When it ends, then it says so
    with pytest.raises(SystemExit) as ended:
        main.main(["info"])
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip().startswith("interrupted: 5 of 5 files read, ")


def test_a_long_command_shows_its_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a terminal, and a command that takes longer than a second
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            written = super().write(text)
            if "1 of 3" in text:
                drawn.set()
            return written

    drawn, terminal = threading.Event(), Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_SECONDS", 0.001)
    # When it says what it has done
    with Busy("files read") as busy:
        busy("files read", 1, 3)
        assert drawn.wait(10)
    # Then that is shown on one line, which is deleted at the end
    printed = terminal.getvalue()
    assert "\r1 of 3 files read, 0 s\x1b[K" in printed
    assert printed.endswith("\r\x1b[K")


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["help"]])
def test_help_lists_the_commands_by_topic(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert not ended.value.code
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line in {f"{one}:" for one in main.TOPICS}]
    assert all(f"\n  {name} " in printed for name in main.WORDS)
    assert max(map(len, printed.splitlines())) <= 80


def test_help_of_a_command_is_found_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for words in (["help", "pending", "list"], ["pending", "list", "-h"]):
        with pytest.raises(SystemExit):
            main.main(words)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "Example: headwater pending list" in printed[0]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("PT1H30M", 5_400_000),
        ("1.5h", 5_400_000),
        ("90 min", 5_400_000),
        ("1 hour 30 minutes", 5_400_000),
        ("12 min 7 s", 727_000),
        ("2 days 3 h", 183_600_000),
        ("1w", 604_800_000),
        ("P1DT12H", 129_600_000),
        ("0s", 0),
        ("5", None),
        ("", None),
        ("m", None),
        ("-5m", None),
        ("5m 5m", None),
        ("30m1h", None),
        ("1e3s", None),
        ("1 month", None),
        ("PT", None),
        ("NaNs", None),
    ],
)
def test_lengths_of_time_are_read_in_every_usual_form(text: str, ms: int | None) -> None:
    assert length_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", 1_526_569_258_055),
        ("5m ago", 1_526_568_958_055),
        ("5m", 1_526_568_958_055),
        ("1h30m ago", 1_526_563_858_055),
        ("2018-05-17T15:00:58.055Z", 1_526_569_258_055),
        ("2018-05-17 17:00:58.055+02:00", 1_526_569_258_055),
        ("2018-05-17T15:00:58.055123456Z", 1_526_569_258_055),
        ("1526569258055", 1_526_569_258_055),
    ],
)
def test_moments_are_read_in_every_usual_form(text: str, ms: int) -> None:
    assert milliseconds_of(text, "--at", now_ms=1_526_569_258_055) == ms
