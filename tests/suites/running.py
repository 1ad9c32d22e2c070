"""Runs one file of tests against one server, and reads what each test's outcome was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from tests import peers
from tests.suites.sources import REDIS_DEFAULTS, ROOT

UNITS: Final = (
    "pause",
    "info",
    "acl",
    "acl-v2",
    "introspection",
    "introspection-2",
    "scripting",
    "multi",
    "latency-monitor",
    "lazyfree",
)
"""Files of Redis's suite, in its tests/unit."""

MODULES: Final = ("test_monitor", "test_commands", "test_scripting", "test_pipeline")
"""Files of redis-py's tests; each also exists in its tests/test_asyncio."""

SECONDS: Final = 1200
"""How long one file may take: the longest takes three minutes."""

SILENT_SECONDS: Final = 300
"""How long one test of Redis's suite may take."""


class Outcome(NamedTuple):
    """How a test ended: ``ok``, ``err``, ``skip``, or ``none`` if it did not run; and why."""

    status: str
    why: str = ""


Outcomes = dict[str, Outcome]
"""Name of a test → its outcome; a second test of the same name has `` #2`` behind it."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RESULT = re.compile(r"\[(ok|err|exception|ignore|skip|TIMEOUT)\]: (.*)")
_PLACE = re.compile(r" \(\d+ ms\)$| in tests/\S+\.tcl$")
_STATUS = {"ignore": "skip", "exception": "err", "TIMEOUT": "err"}


def read_tcl(text: str) -> Outcomes:
    """Read what Redis's test runner has printed."""
    found = Outcomes()
    lines = _COLOUR.sub("", text).partition("The following tests failed")[0].splitlines()
    for at, line in enumerate(lines):
        matched = _RESULT.match(line)
        if matched is None:
            continue
        why: list[str] = []
        for following in lines[at + 1 :]:
            if following.startswith("["):
                break
            why.append(following)
        _add(found, _PLACE.sub("", matched[2]), matched[1], "\n".join(why))
    return found


def read_junit(text: str) -> Outcomes:
    """Read pytest's report in the format of JUnit."""
    found = Outcomes()
    for case in ET.fromstring(text).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        status, why = "ok", ""
        for child in case:
            if child.tag in ("failure", "error"):
                status, why = "err", f"{child.get('message')}\n{child.text}"
            elif child.tag == "skipped":
                status, why = "skip", str(child.get("message"))
        _add(found, name, status, why)
    return found


def _add(found: Outcomes, name: str, status: str, why: str) -> None:
    key, number = name, 1
    while key in found:
        number += 1
        key = f"{name} #{number}"
    found[key] = Outcome(_STATUS.get(status, status), why)


def run_unit(directory: Path, unit: str) -> Outcomes:
    """Run a file of Redis's suite in a prepared directory. It starts servers itself, one for each block of tests."""
    port = peers.free_port()
    command = ["tclsh", "tests/test_helper.tcl", "--single", f"unit/{unit}", "--clients", "1"]
    command += ["--durable", "--timeout", str(SILENT_SECONDS), "--baseport", str(port)]
    command += ["--portcount", "400"]
    return read_tcl(_output(command, directory, {}))


def run_module(sources: Path, module: str, port: int) -> Outcomes:
    """Run a file of redis-py's tests, with its own sources, against the server at ``port``."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        path = module.replace("asyncio/", "test_asyncio/")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += [f"--redis-url=redis://127.0.0.1:{port}/0", "--timeout=120", "--tb=native"]
        command += [f"--junitxml={report}", f"tests/{path}.py"]
        printed = _output(command, sources, {"PYTHONPATH": str(sources)})
        if not report.exists():
            raise SystemExit(f"pytest did not end for {module}:\n{printed[-3000:]}")
        return read_junit(report.read_text(encoding="utf-8"))


def _output(command: list[str], directory: Path, variables: dict[str, str]) -> str:
    """Return what a command printed; it is ended with all that it started after `SECONDS`."""
    with subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **variables},
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # servers that a cut run has left
    return printed.decode(errors="replace")


@contextmanager
def serving(server: str) -> Iterator[int]:
    """Start one of `sources.SERVERS` and yield its port."""
    if server != "headwater":
        with peers.running(server, "--enable-debug-command", "yes") as peer:
            yield peer.port
        return
    with tempfile.TemporaryDirectory() as directory:
        port = peers.free_port()
        command = [
            str(ROOT / ".venv/bin/headwater"),
            "serve",
            "--port",
            str(port),
            "--dir",
            directory,
        ]
        with subprocess.Popen(
            [*command, "--enable-debug-command", "yes"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **REDIS_DEFAULTS, "PYTHONPATH": str(ROOT / "src")},
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if b"ready at" in line:
                        break
                yield port
            finally:
                process.terminate()
                process.communicate()
