"""Importing Headwater loads only what is used, and the command line starts fast."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from headwater.cli import entry, serving
from headwater.cli.main import main

HEAVY = ("redis", "asyncio", "rich", "pyspark", "pyarrow", "pydantic", "msgspec", "matplotlib")
HEAVY_FOR_HELP = tuple(name for name in HEAVY if name != "asyncio")

WITHIN_MS = 200


def python(program: str) -> str:
    """Run the program in a new interpreter and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(program: str, names: tuple[str, ...]) -> list[str]:
    """Return which of the modules ``names`` are loaded after the program has run."""
    tail = f"\nimport sys; print(); print(*[n for n in {names!r} if n in sys.modules])"
    return python(program + tail).splitlines()[-1].split()


def test_importing_headwater_loads_nothing_heavy() -> None:
    assert loaded_by("import headwater", HEAVY) == []


def test_help_loads_nothing_heavy() -> None:
    program = (
        "from headwater.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert loaded_by(program, HEAVY_FOR_HELP) == []


def test_a_server_starts_without_the_parser_of_the_command_line() -> None:
    # Given a server with a plain command line, which stops as soon as it is ready
    program = (
        "import sys\n"
        "from headwater.cli import entry, serving\n"
        "def stop(line): sys.exit(0)\n"
        "serving.announce = stop\n"
        "sys.argv = ['headwater', 'serve', '--port', '0', '--appendonly=no', '--save=']\n"
        "try:\n    entry.main()\nexcept SystemExit:\n    pass"
    )
    # Then it has loaded neither click nor other slow modules that it does not use
    slow = ("typer", "click", "rich", "redis", "ctypes.util", "difflib", "argparse")
    assert loaded_by(program, slow) == []
    assert loaded_by(program, ("headwater.server.running",)) == ["headwater.server.running"]


@pytest.mark.parametrize(
    "program",
    [
        "import headwater; headwater.connect('redis://localhost:1')",
        "import headwater.aio; headwater.aio.connect('redis://localhost:1')",
        "import headwater, headwater.spark.source; headwater.connect('redis://localhost:1')",
    ],
)
def test_a_client_of_a_server_loads_no_store(program: str) -> None:
    # Given a program that connects to a server, as each process of a Spark query does
    store = ("headwater.engine.keyspace", "headwater.journal.journal", "headwater.server.turn.node")
    # Then it has not loaded what opens a store in its process, which takes 80 ms
    assert loaded_by(program, store) == []
    opens = "import headwater; headwater.connect('headwater://memory').close()"
    assert loaded_by(opens, store) == sorted(store)


@pytest.mark.parametrize(
    "words",
    [
        "--port 0 --dir data --appendfsync=no",
        "--config headwater.conf --maxclients 5",
        "--bind 127.0.0.1 ::1",
        "--bind -::1",
        "--help",
        "--port",
        "data",
        "-- --port 0",
        "--port 0 --help",
        "--Port 0",
        "--user default --user b",
    ],
)
def test_a_plain_command_line_means_the_same_with_and_without_the_parser(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the words that the parser leaves for a command line
    parsed: list[list[str]] = []

    def note(rest: list[str]) -> int:
        parsed.append(rest)
        return 0

    monkeypatch.setattr(serving, "serve", note)
    with pytest.raises(SystemExit):
        main(["serve", *words.split()])
    # When the program is started with it, then they are the same, and only the help needs the parser
    monkeypatch.setattr(sys, "argv", ["headwater", "serve", *words.split()])
    with pytest.raises(SystemExit):
        entry.main()
    assert parsed == ([] if "--help" in words else [words.split()] * 2)


def test_every_public_name_resolves_and_is_listed() -> None:
    assert (
        python(
            "import headwater\n"
            "for name in headwater.__all__: getattr(headwater, name)\n"
            "assert set(headwater.__all__) <= set(dir(headwater))"
        )
        == ""
    )


def test_a_wrong_public_name_is_an_attribute_error() -> None:
    import headwater

    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = headwater.conect


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="measured alone: in `make check`")
def test_help_takes_at_most_200_ms() -> None:
    """The best of five runs counts: other work on the machine only makes a run slower."""
    best = min(_help_seconds() for _ in range(5))
    assert best * 1000 < WITHIN_MS, f"headwater --help took {best * 1000:.0f} ms at best"


def _help_seconds() -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", "--help"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    return time.perf_counter() - began
