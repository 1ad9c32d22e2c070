"""The demo leaves no process running, however it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headwater.demo import children as module
from headwater.demo.children import ChildFailed, Children, interrupted_by_signals
from tests.processes import runs
from tests.waiting import eventually

SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
PARENT = (
    "import subprocess, sys, time; "
    f"c = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); "
    "print('grandchild', c.pid, flush=True); time.sleep(600)"
)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT with Python's default handler. A shell starts background processes with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_leaving_the_block_ends_children_and_grandchildren(tmp_path: Path) -> None:
    # Given a child process that has started a child itself
    with Children(tmp_path) as children:
        parent = children.start("parent", python(PARENT))
        grandchild = int(parent.line_with("grandchild", within=20).split()[-1])
    # Then neither is left. The kernel takes a moment for processes that are not our children
    assert not parent.running
    eventually(lambda: not runs(grandchild))


def test_an_error_in_the_block_ends_the_children(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Children(tmp_path) as children:
        child = children.start("child", python(SLEEPER))
        raise KeyboardInterrupt
    assert not child.running


def test_a_stopped_child_is_ended(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("child", python(SLEEPER))
        child.line_with("ready", within=20)
        child.send(signal.SIGSTOP)
    assert child.process.returncode == -signal.SIGTERM


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("child", python(DEAF))
        child.line_with("ready", within=20)
        child.end(within=0.2)
    assert child.process.returncode == -signal.SIGKILL


def test_a_spared_child_is_left_running(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("server", python(SLEEPER))
        children.kept.add("server")
    try:
        assert child.running
    finally:
        child.end()


def test_a_child_that_ends_early_is_quoted(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("server", python("print('address in use'); raise SystemExit(3)"))
        with pytest.raises(ChildFailed, match=r"exit status 3(.|\n)*address in use"):
            child.line_with("ready", within=20)


def test_lines_are_followed_until_the_child_ends(tmp_path: Path) -> None:
    program = "print('row 1', flush=True); print('nothing', flush=True); print('row 2')"
    with Children(tmp_path) as children:
        child = children.start("child", python(program))
        assert list(child.lines_with("row", within=20)) == ["row 1", "row 2"]
        assert child.process.returncode == 0


def test_a_child_that_is_followed_for_too_long_is_quoted(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("child", python(SLEEPER))
        child.line_with("ready", within=20)
        with pytest.raises(ChildFailed, match=r"did not end within 0 seconds(.|\n)*ready"):
            list(child.lines_with("ready", within=0))


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_child_starts_ends_that_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a Ctrl-C after the process was started and before `start` has returned
    started: list[module.Child] = []

    class Interrupted(module.Child):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(module, "Child", Interrupted)
    # When it is handled
    with pytest.raises(KeyboardInterrupt), Children(tmp_path) as children:
        children.start("child", python(SLEEPER))
    # Then the child has ended
    assert not started[0].running


def test_a_second_ctrl_c_does_not_interrupt_the_cleanup() -> None:
    cleaned = False
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            cleaned = True
    assert cleaned


def test_sigterm_ends_the_demo_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_that_a_finalizer_loses_is_raised_at_the_next_look() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals() as look:
        # Given Ctrl-C in a callback, whose errors Python only prints
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        steps.append("first")
        # When the demo goes on to its next step
        look()
        steps.append("second")
    # Then it has ended before that
    assert steps == ["first"]


@pytest.mark.usefixtures("ctrl_c")
def test_a_lost_interrupt_is_raised_at_the_end_at_the_latest() -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        interrupted_by_signals(),
        suppress(KeyboardInterrupt),
    ):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_an_error_that_a_library_makes_of_an_interrupt_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as interrupt:
            raise ImportError("could not be imported") from interrupt


@pytest.mark.usefixtures("ctrl_c")
def test_without_a_signal_a_look_and_an_error_change_nothing() -> None:
    with pytest.raises(ImportError, match="none"), interrupted_by_signals() as look:
        look()
        raise ImportError("none")
