"""``--watch`` shows a query again and again; on a terminal one picture replaces the other."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest
import redis

from headwater.cli.command import repeat
from headwater.errors import HeadwaterError

QUERIES = (
    "streams list",
    "groups list",
    "lag s",
    "pending list s",
    "consumers list s g",
    "retries list s g",
    "dead list s",
    "explain",
    "doctor",
    "replicas",
)


def twice(show: Callable[[], object], screen: io.StringIO) -> str:
    """Watch for two pictures, then press Ctrl-C; return what was printed."""
    pauses = iter((None,))

    def pause(_seconds: float) -> None:
        if next(pauses, "end") == "end":
            raise KeyboardInterrupt

    with redirect_stdout(screen), pytest.raises(KeyboardInterrupt):
        repeat(show, pause=pause)
    return screen.getvalue()


def test_a_picture_is_printed_again_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    # Given a store that cannot be reached at first
    answers = iter([HeadwaterError("it cannot be reached"), None])

    def show() -> None:
        if error := next(answers):
            raise error
        print("it answers")

    # When it is watched, then both are shown
    assert twice(show, io.StringIO()) == "it answers\n"
    assert capsys.readouterr().err == "headwater: it cannot be reached\n"


def test_on_a_terminal_a_picture_replaces_the_one_before() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            return terminal

    controller, terminal = pty.openpty()
    try:
        pictures = iter(["long one\nsecond", "short"])
        printed = twice(lambda: print(next(pictures)), Terminal())
    finally:
        os.close(controller)
        os.close(terminal)
    # Each is drawn from the upper left corner, and what the one before left is deleted
    assert printed == "\x1b[Hlong one\x1b[K\nsecond\x1b[K\n\x1b[J\x1b[Hshort\x1b[K\n\x1b[J"


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_can_be_watched(query: str, run_headwater: Callable[..., str]) -> None:
    assert "-w, --watch" in run_headwater(*query.split(), "--help")


def test_tables_fit_the_terminal_and_have_colour_there_only(headwater_url: str) -> None:
    # Given names that need more than 80 columns
    with redis.Redis.from_url(headwater_url) as client:
        client.flushall()
        client.xgroup_create(
            "orders-of-the-northern-warehouse", "billing-of-large-customers", mkstream=True
        )

    def lines(**environment: str) -> list[str]:
        controller, terminal = pty.openpty()
        try:
            command = [sys.executable, "-m", "headwater", "groups", "list", "--url", headwater_url]
            surroundings = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment}
            subprocess.run(command, stdout=terminal, check=True, env=surroundings, timeout=60)
            return os.read(controller, 65_536).decode().splitlines()
        finally:
            os.close(controller)
            os.close(terminal)

    # When they are listed on one, then no line is longer, and the titles are bold
    coloured = lines()
    assert coloured[0].startswith("\x1b[1mSTREAM")
    plain = lines(NO_COLOR="1")
    assert plain[0].startswith("STREAM")
    assert max(map(len, plain)) <= 80
    assert "".join(line.split("  ")[0] for line in plain[1:]) == "orders-of-the-northern-warehouse"
    # And in a pipe each row is one line without colour
    command = [sys.executable, "-m", "headwater", "groups", "list", "--url", headwater_url]
    piped = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, timeout=60
    ).stdout
    assert len(piped.splitlines()) == 2
    assert "\x1b" not in piped


def test_an_error_is_not_in_the_documents_of_a_program(headwater_url: str) -> None:
    # Given a program that reads the pictures as JSON, and a stream that does not exist
    command = [sys.executable, "-m", "headwater.cli.main", "lag", "none", "--watch", "-o", "json"]
    with subprocess.Popen(
        [*command, "--url", headwater_url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as watching:
        # When the first picture fails
        assert watching.stderr is not None
        said = watching.stderr.readline()
        watching.terminate()
        printed, _rest = watching.communicate(timeout=60)
    # Then the error is on standard error, and nothing for people on standard output
    assert b"there is no stream 'none'" in said
    assert printed == b""
