"""docs/guide/server.md: keys and values, the log, and systemd."""

from __future__ import annotations

import configparser
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.commands.table import COMMANDS
from headwater.server.log import JsonFormatter, TextFormatter
from headwater.testing.server import server_thread
from tests.e2e.notify import WITHIN, ServiceManager

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "server.md").read_text(encoding="utf-8")
SECTION = GUIDE.partition("## Keys and the other types\n")[2].partition("\n## ")[0]
GROUPS = {"generic", "string", "list", "set", "hash"}
OTHERS = {"DBSIZE", "SWAPDB", "FLUSHDB", "FLUSHALL"}
"""Commands of the group *server* that are about keys."""
ABOUT_NO_KEY = {"WAIT", "WAITAOF"}


@pytest.fixture
def client() -> Iterator[Any]:
    with server_thread() as server, redis.Redis.from_url(server.url) as made:
        yield made


def test_it_names_exactly_the_commands_on_keys_and_values() -> None:
    there = {row.name.upper() for row in COMMANDS.values() if row.group in GROUPS} | OTHERS
    assert set(re.findall(r"`([A-Z]+)`", SECTION)) == there - ABOUT_NO_KEY


def test_its_example_runs(client: Any) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    where = client.connection_pool.connection_kwargs
    exec(program.replace("localhost:6379", f"{where['host']}:{where['port']}"), {})
    assert client.xlen("orders:old") == 1


def test_idle_times_and_encodings_are_supported(client: Any) -> None:
    client.rpush("l", "a")
    assert client.object("ENCODING", "l") == b"listpack"
    assert client.object("IDLETIME", "l") == 0
    with pytest.raises(redis.ResponseError, match="LFU"):
        client.object("FREQ", "l")


# --- systemd --------------------------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    """The unit file of the guide."""
    (text,) = re.findall(r"```ini\n(.*?)```", GUIDE, re.DOTALL)
    parsed = configparser.ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(text)
    return parsed


def test_the_unit_file_has_what_systemd_needs() -> None:
    assert unit().sections() == ["Unit", "Service", "Install"]
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["ExecStart"].startswith("/")
    # The state directory is the data directory, and not every user may write to it.
    assert f"--dir /var/lib/{service['StateDirectory']}" in service["ExecStart"]
    assert int(service["StateDirectoryMode"], 8) & 0o002 == 0


@pytest.mark.slow
def test_the_command_of_the_unit_file_starts_reloads_and_stops(tmp_path: Path) -> None:
    # Given the command of the unit file, and a directory as systemd makes it
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "headwater"
    data = tmp_path / service["StateDirectory"]
    data.mkdir(mode=int(service["StateDirectoryMode"], 8))
    words = [str(data) if word == f"/var/lib/{data.name}" else word for word in words]
    manager = ServiceManager(tmp_path)
    environment = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": str(int(service["WatchdogSec"]) * 1_000_000),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater.cli.main", *words, "--port", "0"],
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        # Then the server notifies systemd when it is ready, reloads and stops
        assert manager.until("READY")["MAINPID"] == str(process.pid)
        assert "WATCHDOG" in manager.next()
        process.send_signal(signal.SIGHUP)
        assert "RELOADING" in manager.next()
        assert "READY" in manager.next()
        process.send_signal(signal.SIGTERM)
        assert "STOPPING" in manager.next()
        assert process.wait(WITHIN) == 0
    finally:
        process.kill()
        process.wait()
        manager.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert json.loads(lines[-1])["message"] == "stopped with exit status 0"


def test_the_example_lines_of_the_log_have_the_real_format() -> None:
    (block,) = re.findall(r"```text\n(\d{4}-.*?)```", GUIDE, re.DOTALL)
    text, line = block.splitlines()
    record = logging.LogRecord(
        "headwater.server",
        logging.WARNING,
        "",
        0,
        "client %d (%s) is disconnected: %s",
        (7, "10.0.0.8:50312", "Protocol error: expected '$', got 'G'"),
        None,
    )
    # Everything except the time, the process and what the guide leaves out
    assert TextFormatter().format(record)[23:] == text[23:]
    written, shown = json.loads(JsonFormatter().format(record)), json.loads(line)
    assert written.keys() == shown.keys()
    assert written["message"].startswith(shown["message"].rstrip("…"))
