"""A trial: a group and its clients on a network, a number of faults drawn from a seed, and the verdict."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.failover import judge
from tests.failover.clients import GROUP, RAW, invoices, orders
from tests.failover.faults import FAULTS, Fault, drawn
from tests.failover.judge import Finding, Window
from tests.failover.logs import PATTERN, Reader
from tests.failover.members import (
    CLIENTS,
    LOST,
    OURS,
    PATIENCE_SECONDS,
    SIDES,
    Group,
    Process,
    Setup,
    group,
    until,
)
from tests.failover.network import network

STREAMS: Final = (RAW, orders.name, invoices.name)
GROUPS: Final = ((RAW, GROUP), (orders.name, "billing"))

FLOW_SECONDS: Final = 30.0
"""How long it may take until every kind of producer is answered again."""
END_SECONDS_IF_STUCK: Final = 5.0
"""How long to wait for the end of a trial that is known to be stuck."""
PAGE: Final = 5_000

KEPT: Final = Path("artifacts", "failover")
"""Directory for the logs of trials with findings."""


@dataclass
class Verdict:
    """What a trial has found."""

    windows: list[Window] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """For each fault, the time until the first answered write; infinite if there was none."""
    silences: list[float] = field(default_factory=list)
    """For each fault, the longest time without any answered write until the group was whole."""
    counts: Counter[str] = field(default_factory=Counter)
    """Answered writes, and each kind of violation."""
    lost: Counter[str] = field(default_factory=Counter)
    """Lost answered writes by the fault to which they are assigned."""
    failures: list[str] = field(default_factory=list)
    """Broken promises, and anything that is wrong on every server."""


class Clients:
    """The processes of the clients of all sides."""

    def __init__(self, found: Group, directory: Path) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        for side in CLIENTS:
            words = [sys.executable, "-m", "tests.failover.clients", "--sentinels", found.places]
            words += ["--log", str(directory), "--name", side, "--wait", str(found.setup.wait)]
            words += ["--unique"] if found.setup.server == OURS else []
            with (directory / f"{side}.out").open("wb") as out:
                self._processes.append(
                    subprocess.Popen(
                        found.net.command(side, words),
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )

    def signal(self, number: int) -> None:
        """Send a signal to all of them."""
        for one in self._processes:
            if one.poll() is None:
                one.send_signal(number)

    def ended(self) -> list[str]:
        """The sides whose clients ended by themselves, which is an error of the harness or of the client library."""
        return [
            f"the clients of {side} ended with {one.returncode}: {self._output(side)}"
            for side, one in zip(CLIENTS, self._processes, strict=True)
            if one.poll() not in (None, 0)
        ]

    def _output(self, side: str) -> str:
        return (self.directory / f"{side}.out").read_text(errors="replace")[-1_500:]

    def close(self) -> None:
        """End all of them."""
        self.signal(signal.SIGTERM)
        for one in self._processes:
            with suppress(subprocess.TimeoutExpired):
                one.wait(15)
            if one.poll() is None:
                one.kill()
            one.wait()


class Trial:
    """A trial. `run` returns the verdict."""

    def __init__(
        self,
        setup: Setup,
        *,
        seed: int,
        count: int,
        loopback: bool = False,
        faults: Sequence[Fault] = FAULTS,
    ) -> None:
        self.setup = setup
        self.seed = seed
        self.verdict = Verdict()
        self._count = count
        self._loopback = loopback
        self._faults = faults
        self._rng = random.Random(seed)

    def run(self) -> Verdict:
        """Run the trial."""
        directory = Path(tempfile.mkdtemp(prefix="hw-failover-"))
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            net = stack.enter_context(network(SIDES, loopback=self._loopback))
            found = stack.enter_context(group(self.setup, net, directory))
            found.primary().ask("XGROUP", "CREATE", RAW, GROUP, "0", "MKSTREAM")
            logs = directory / "logs"
            logs.mkdir()
            clients = Clients(found, logs)
            stack.callback(clients.close)
            self._run(found, clients, Reader(logs))
            if self.verdict.failures or self.verdict.counts.keys() - {"answered writes"}:
                self._keep(directory)
        return self.verdict

    def _run(self, found: Group, clients: Clients, logs: Reader) -> None:
        try:
            self._flows(logs)
            for number in range(self._count):
                time.sleep(self._rng.uniform(0.1, 1.5))
                self._fail(found, logs, number)
                if wrong := clients.ended():
                    self.verdict.failures += wrong
                    break
        except TimeoutError as error:
            self.verdict.failures.append(f"stuck: {error}")
            self._try(found.repair)
        self._end(found, clients, logs)

    def _flows(self, logs: Reader) -> None:
        """Wait until each kind of producer is answered and entries are acknowledged."""
        since = time.monotonic()
        wanted = {
            (RAW, "answered"),
            (RAW, "acked"),
            (orders.name, "answered"),
            (orders.name, "handled"),
        }
        seen: set[tuple[str, str]] = set()

        def flows() -> bool:
            seen.update((one.stream, one.did) for one in logs.more() if one.at > since)
            return wanted <= seen

        try:
            until(flows, "messages flow", FLOW_SECONDS)
        except TimeoutError as error:
            missing = ", ".join(" ".join(one) for one in sorted(wanted - seen))
            raise TimeoutError(f"{error}: without {missing}") from None

    def _fail(self, found: Group, logs: Reader, number: int) -> None:
        """Play one fault, wait until the group is whole and messages flow, and print a line. Raises `TimeoutError`."""
        possible = [one for one in self._faults if found.net.can_cut or not one.partition]
        fault = drawn(self._rng, possible)
        before = found.primary()
        began = found.struck = undone = time.monotonic()
        stuck, wrong, repaired = "", None, 0.0
        try:
            wrong = fault.play(found, self._rng)
            undone = time.monotonic()
            found.await_whole()
            repaired = time.monotonic()
            self._flows(logs)
        except (TimeoutError, *LOST) as error:
            stuck = str(error) or repr(error)
        window = Window(fault.name, began, repaired or time.monotonic())
        self.verdict.windows.append(window)
        if wrong:
            self.verdict.counts["failovers by hand given up"] += 1
            if self.setup.server == OURS:
                self.verdict.failures.append(f"{fault.name}, {number + 1}: {wrong}")
        logs.more()
        first = judge.first_answer(logs.events, found.struck)
        self.verdict.seconds.append(float("inf") if first is None else first)
        silence = judge.longest_silence(logs.events, began, window.repaired)
        self.verdict.silences.append(silence)
        after = found.chosen()
        change = "stays" if after is before else f"to {after.side if after else 'none'}"
        answer = (
            "no answered write" if first is None else f"first answered write after {first:.2f} s"
        )
        print(
            f"seed {self.seed}, {number + 1}: {fault.name}; {before.side} {change}; {answer}, "
            f"longest silence {silence:.2f} s, undone after {undone - began:.1f} s, "
            f"whole after {window.repaired - began:.1f} s",
            *([wrong] if wrong else []),
            *([f"STUCK: {stuck}"] if stuck else []),
            sep="; ",
            flush=True,
        )
        if stuck:
            for one in found.members:
                one.show_stacks()
            raise TimeoutError(f"after {fault.name}, {number + 1}: {stuck}")

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, found: Group, clients: Clients, logs: Reader) -> None:
        """Let the producers end and the others finish, and judge."""
        if self.verdict.windows and not self.verdict.failures:
            last = self.verdict.windows[-1].repaired
            time.sleep(2.0)
            told = time.monotonic()
            logs.more()
            self._broken("stuck", judge.stuck(logs.events, last, told))
        clients.signal(signal.SIGUSR1)
        seconds = END_SECONDS_IF_STUCK if self.verdict.failures else PATIENCE_SECONDS
        settled = self._try(lambda: until(lambda: _settled(found), "all is settled", seconds))
        clients.close()
        equal = self._try(
            lambda: until(lambda: _equal_offsets(found), "members have equal offsets", seconds)
        )
        logs.more()
        content = {name: entries(found.primary(), name) for name in STREAMS}
        self._judge(content, logs, settled=settled)
        if equal:
            states = {one.side: state(one) for one in found.members}
            self._broken("members that differ", judge.differences(states))

    def _try(self, wait: Callable[[], Any]) -> bool:
        try:
            wait()
        except TimeoutError as error:
            self.verdict.failures.append(f"stuck: {error}")
            return False
        return True

    def _judge(self, content: Mapping[str, judge.Entries], logs: Reader, *, settled: bool) -> None:
        windows, events = self.verdict.windows, logs.events
        self.verdict.counts["answered writes"] = sum(one.did == "answered" for one in events)
        lost = judge.lost(events, content, windows)
        self.verdict.lost.update(
            windows[one.fault].fault if windows else "no fault" for one in lost
        )
        self._found("lost answered writes", lost)
        self._found("gaps", judge.gaps(events, content, windows), always=True)
        self._found("redelivered after XACK", judge.redelivered(events, windows))
        self._found("messages twice", judge.repeated(events, content, windows))
        twice = judge.results_twice(content[orders.name], content[invoices.name])
        self._broken("results twice", twice)
        if settled:
            missing = judge.results_missing(content[orders.name], content[invoices.name])
            self._broken("results missing", missing)
            missing = judge.never_delivered(events, RAW, content[RAW])
            self._broken("never delivered", missing)

    def _found(self, kind: str, findings: list[Finding], *, always: bool = False) -> None:
        """Count findings. They are failures if a promise of Headwater covers the fault to which they are assigned."""
        self.verdict.counts[kind] += len(findings)
        self.verdict.counts += Counter()  # without zeros
        for index, count in sorted(Counter(one.fault for one in findings).items()):
            fault = self._fault(index)
            if always or fault is None or self.setup.synchronous >= fault.down:
                window = self.verdict.windows[index] if fault else Window("", 0, 0)
                some = [one for one in findings if one.fault == index]
                shown = "; ".join(
                    f"{one.text} at {one.at - window.began:+.3f} s" for one in some[:3]
                )
                name = "no fault" if fault is None else f"{fault.name} ({index + 1})"
                self.verdict.failures.append(f"{kind}: {count} at {name}: {shown}")

    def _fault(self, index: int) -> Fault | None:
        if not 0 <= index < len(self.verdict.windows):
            return None
        return next(one for one in FAULTS if one.name == self.verdict.windows[index].fault)

    def _broken(self, kind: str, texts: list[str]) -> None:
        """Count what is wrong on every server and after every fault."""
        if texts:
            self.verdict.counts[kind] += len(texts)
            self.verdict.failures.append(f"{kind}: {len(texts)}: {'; '.join(texts[:3])}")

    def _keep(self, directory: Path) -> None:
        """Copy the logs of clients and servers."""
        words = self.setup.name.replace(", ", "-").replace(" ", "-")
        kept = KEPT / f"{words}-{self.seed}-{os.getpid()}"
        kept.mkdir(parents=True, exist_ok=True)
        for path in (directory / "logs").glob(PATTERN):
            shutil.copy(path, kept)
        for path in (directory / "logs").glob("*.out"):
            shutil.copy(path, kept)
        for path in directory.glob("*/log"):
            shutil.copy(path, kept / f"{path.parent.name}.log")
        windows = "".join(
            f"{one.began:.3f} {one.repaired:.3f} {one.fault}\n" for one in self.verdict.windows
        )
        (kept / "windows.txt").write_text(windows)
        (kept / "failures.txt").write_text("\n".join(self.verdict.failures))
        print(f"    logs: {kept}", flush=True)


# --- what the members have ------------------------------------------------------------------------


def entries(member: Process, stream: str) -> list[tuple[str, dict[str, str]]]:
    """All entries of a stream, as the judge takes them."""
    found: list[tuple[str, dict[str, str]]] = []
    start = "-"
    while True:
        page = member.ask("XRANGE", stream, start, "+", "COUNT", PAGE)
        for entry, fields in page:
            texts = [one.decode() for one in fields]
            found.append((entry.decode(), dict(zip(texts[::2], texts[1::2], strict=True))))
        if len(page) < PAGE:
            return found
        start = f"({found[-1][0]}"


def state(member: Process) -> dict[str, Any]:
    """What a member has, without what members need not share."""
    found: dict[str, Any] = {"DBSIZE": member.ask("DBSIZE")}
    for stream in STREAMS:
        found[f"XRANGE {stream}"] = [list(one) for one in entries(member, stream)]
        with suppress(*LOST):
            full = member.ask("XINFO", "STREAM", stream, "FULL", "COUNT", 1)
            found[f"XINFO {stream}"] = judge.comparable(full)
    for stream, name in GROUPS:
        with suppress(*LOST):
            rows = member.ask("XPENDING", stream, name, "-", "+", 100_000)
            found[f"XPENDING {stream}"] = judge.pending(rows)
    return found


def _settled(found: Group) -> bool:
    """Whether all groups have read everything and nothing is pending."""
    primary = found.primary()
    for stream, name in GROUPS:
        about = judge.comparable(primary.ask("XINFO", "STREAM", stream))
        for row in judge.comparable(primary.ask("XINFO", "GROUPS", stream)):
            if row["name"] != name:
                continue
            if row["pending"] or row["last-delivered-id"] != about["last-generated-id"]:
                return False
    return True


def _equal_offsets(found: Group) -> bool:
    """Whether all members have the same offset at one moment. On Redis it grows each second."""
    return len({one.info()["master_repl_offset"] for one in found.members}) == 1
