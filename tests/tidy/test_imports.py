"""Importing Headwater loads only what is used, and the command line starts fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from headwater.cli import entry, serving
from headwater.cli.main import main
from headwater.testing.server import server_process

HEAVY = ("redis", "asyncio", "rich", "pyspark", "pyarrow", "pydantic", "msgspec", "matplotlib")

HELP = {
    "cli",
    "cli.command",
    "cli.entry",
    "cli.main",
    "common",
    "common.names",
    "errors",
    "version",
}
"""What of Headwater ``headwater --help`` imports."""

QUERY = HELP | {
    "cli.arguments",
    "cli.output",
    "cli.pending",
    "cli.pending_actions",
    "cli.progress",
    "cli.query",
    "client",
    "client.direct",
    "client.redaction",
    "groups",
    "groups.membership",
    "groups.membership.consumers",
    "groups.membership.group_backup",
    "groups.membership.member",
    "groups.protocol",
    "groups.protocol.capabilities",
    "groups.protocol.missing_stream",
    "groups.protocol.operation",
    "groups.protocol.scripts",
    "groups.reports",
    "groups.reports.limited",
    "groups.reports.pending",
    "messages",
    "messages.keys",
    "common.model",
    "operations",
    "operations.times",
}
"""What of Headwater ``headwater pending list`` imports."""

SLOW_OF_PYTHON = {
    "asyncio",
    "concurrent",
    "email",
    "http",
    "importlib.metadata",
    "logging",
    "ssl",
    "unittest",
}


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


def modules_of(words: list[str]) -> tuple[set[str], set[str], set[str]]:
    """Run ``headwater …``. Return what it imports: of Headwater, of others, of Python what is slow."""
    program = (
        "import sys\n"
        "before = {*sys.modules}\n"
        f"sys.argv = ['headwater', *{words!r}]\n"
        "from headwater.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(); print(*{*sys.modules} - before)"
    )
    found = python(program).splitlines()[-1].split()
    ours = {name.partition(".")[2] for name in found if name.startswith("headwater.")} - {"_pure"}
    tops = {name.partition(".")[0] for name in found if "cython" not in name} - {"headwater"}
    python_own = {name.lstrip("_") for name in tops} & {*sys.stdlib_module_names}
    others = {name for name in tops if name.lstrip("_") not in python_own} - {
        *sys.stdlib_module_names
    }
    return ours, others, SLOW_OF_PYTHON & {*found}


@pytest.fixture(scope="module")
def queried() -> Iterator[str]:
    """The url of a server with a group that has a pending entry."""
    with server_process("--appendonly", "no") as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("orders", {"item": "tea"})
            client.xgroup_create("orders", "billing", "0")
            client.xreadgroup("billing", "web-1", {"orders": ">"})
        yield server.url


def test_help_imports_only_these_modules() -> None:
    assert modules_of(["--help"]) == (HELP, {"click"}, set())


def test_a_query_imports_only_these_modules(queried: str) -> None:
    # Neither redis-py, the framework nor a codec
    found = modules_of(["pending", "list", "orders", "--url", queried])
    assert found == (QUERY, {"click", "hiredis"}, set())


@pytest.mark.parametrize(
    "words",
    [
        "streams list",
        "groups list",
        "lag orders",
        "tail orders",
        "consumers list orders billing",
        "retries list orders billing",
        "dead list orders",
        "explain --window 0s",
        "add orders item=tea",
    ],
)
def test_queries_import_no_client_library(words: str, queried: str) -> None:
    _ours, others, slow = modules_of([*words.split(), "--url", queried])
    assert others <= {"click", "hiredis"}
    assert not slow


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
    store = (
        "headwater.engine.keyspace.keyspace",
        "headwater.journal.log.journal",
        "headwater.server.turn.node",
    )
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
