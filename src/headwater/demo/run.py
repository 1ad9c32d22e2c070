"""Runs the demo's steps, from starting a server to writing a report: see `Demo.run`.

Server, workers and Spark are separate processes, started with the commands that a user would type:
``headwater serve``, ``headwater work``, ``headwater pipeline run``.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import headwater
from headwater.demo import data, faults, reconcile, report
from headwater.demo.children import Child, Children, interrupted_by_signals
from headwater.demo.console import DemoConsole
from headwater.demo.corrupt import plan
from headwater.demo.evidence import OwnedEntries, collect
from headwater.demo.names import (
    APP,
    ENRICHED,
    INPUTS_VARIABLE,
    PAUSE_VARIABLE,
    PAUSED_CONCURRENCY,
    STREAM,
    URL_VARIABLE,
)
from headwater.demo.producer import Published, Publishing
from headwater.demo.reconcile import Line
from headwater.demo.sampling import Sample, Sampler
from headwater.demo.tables import read_delays

if TYPE_CHECKING:
    from redis import Redis


LEAST_FLIGHTS = 1_000
"""Minimum number of flights. A smaller run ends before a worker can be stopped."""

SEED = 2013

WORKERS = 3

STOP_AT, KILL_AT = 0.2, 0.4
"""Fractions of the flights after which one worker is stopped, and another worker is killed."""

SHORT_FLIGHTS = 60_000
SHORT_SECONDS = 6.0
"""Approximate duration of the workers' step, in seconds, in a run of fewer flights than `SHORT_FLIGHTS`. In such
a run, workers pause for each flight."""

START_SECONDS = 60.0
STALL_SECONDS = 60.0
"""Time without a settled flight after which the run fails, in seconds: many times ``claim_after``."""
SPARK_SECONDS = 900.0


class DemoResult(NamedTuple):
    """The lines of the reconciliation, and the path of the report."""

    lines: list[Line]
    report: Path


class WorkResult(NamedTuple):
    """The results of the workers' step, for the reconciliation and the report."""

    published: Published
    stopped: OwnedEntries
    killed: OwnedEntries
    sampler: Sampler


def run(console: DemoConsole, *, flights: int, seed: int, keep: bool) -> DemoResult:
    """Run the demo in a new temporary directory. All processes end, except for the server if ``keep`` is true.

    The directory then has the report. Logs and data stay if a line does not hold, ``keep`` is true, or a process
    fails, which raises `HeadwaterError`. Ctrl-C deletes the directory.
    """
    check_installed()
    place = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        with interrupted_by_signals() as look, Children(place / "logs") as children:
            outcome = Demo(
                console, place, children, look, flights=flights, seed=seed, keep=keep
            ).run()
    except KeyboardInterrupt:
        shutil.rmtree(place, ignore_errors=True)
        raise
    except BaseException:
        console.say(f"logs and data are in {place}")
        raise
    if not keep and all(line.holds for line in outcome.lines):
        for rest in [path for path in place.iterdir() if path != outcome.report]:
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
    return outcome


def check_installed() -> None:
    """Raise `HeadwaterError` now for a missing dependency, not after the first minute."""
    from headwater.spark.java import find_java

    data.directory()
    missing = [name for name in ("matplotlib", "pyarrow", "pyspark") if find_spec(name) is None]
    if missing:
        raise data.DataMissing(
            f"{', '.join(missing)} not installed: pip install 'headwater[demo,spark]'"
        )
    find_java()


class Demo:
    """One run, in the directory ``place``. ``look`` is called after each step, and must raise
    `KeyboardInterrupt` if a signal has arrived."""

    def __init__(
        self,
        console: DemoConsole,
        place: Path,
        children: Children,
        look: Callable[[], None],
        *,
        flights: int,
        seed: int,
        keep: bool,
    ) -> None:
        self.flights = flights
        self.seed = seed
        self.keep = keep
        self.console = console
        self.place = place
        self.children = children
        self.look = look
        self.facts: list[tuple[str, str]] = []
        self._step = ""
        self._step_began = 0.0

    def run(self) -> DemoResult:
        """Run the six steps."""
        self.begin("1 server", "A server with a journal")
        server, url = self.serve()
        client = headwater.connect(url)
        self.begin(
            "2 producer",
            f"A producer publishes {self.flights:,} flights, one in a thousand corrupted",
        )
        flights = data.flights(limit=self.flights)
        work = self.work(client, url, flights)
        self.begin("4 Spark", f"Spark turns {ENRICHED} into tables")
        self.make_tables(url)
        self.begin("5 reconciliation", "Everything is counted again")
        evidence = collect(
            client,
            work.published,
            killed=work.killed,
            stopped=work.stopped,
            tables=self.place / "tables",
        )
        lines = reconcile.lines(evidence)
        self.console.block(reconcile.text(lines))
        self.begin("6 report", "A report with plots")
        path = self.write_report(lines, work)
        self.end_step()
        self.console.say(f"{path}")
        self.console.say(f"{self.console.seconds:.0f} seconds in all: {self.times()}")
        if self.keep:
            self.leave_running(server, url)
        return DemoResult(lines, path)

    # --- the steps --------------------------------------------------------------------------------

    def serve(self) -> tuple[Child, str]:
        """Start a server on a free port; return it and its url."""
        server = self.children.headwater(
            "server", "serve", "--port", "0", "--dir", str(self.place / "data")
        )
        ready = server.line_with(" ready at ", within=START_SECONDS)
        self.console.say(ready)
        self.facts.append(("server", ready))
        return server, "redis://" + ready.partition(" ready at ")[2].partition(",")[0]

    def work(self, client: Redis, url: str, flights: list[data.Flight]) -> WorkResult:
        """Publish the flights while three workers enrich them; stop one worker and kill another."""
        corrupted = len(plan(len(flights), seed=self.seed))
        totals = {"published": len(flights), "enriched": len(flights) - corrupted}
        with self.console.progress(totals) as advance:

            def seen(sample: Sample) -> None:
                advance({"published": sample.published, "enriched": sample.enriched})

            with (
                Sampler(client, seen=seen) as sampler,
                Publishing(client, flights, seed=self.seed) as publishing,
            ):
                self.begin(
                    "3 workers", f"{WORKERS} workers enrich them; one is stopped, one is killed"
                )
                workers = self.start_workers(client, url)
                wait = partial(
                    wait_until_settled,
                    flights=len(flights),
                    sampler=sampler,
                    workers=workers,
                    publishing=publishing,
                )
                wait(STOP_AT)
                stopped = self.stop_one(client, sampler)
                wait(KILL_AT)
                killed = self.kill_one(client, sampler)
                seen(wait(1.0))
                published = publishing.result()
        workers.send(signal.SIGTERM)
        status = workers.wait(within=START_SECONDS)
        if status:
            raise workers.failure(f"ended with status {status} after SIGTERM")
        return WorkResult(published, stopped, killed, sampler)

    def start_workers(self, client: Redis, url: str) -> Child:
        """Start ``headwater work``, and wait until each of its processes is in the group."""
        short = self.flights < SHORT_FLIGHTS
        pause = SHORT_SECONDS * WORKERS * PAUSED_CONCURRENCY / self.flights if short else 0
        workers = self.children.headwater(
            "workers",
            *("work", APP, "--workers", str(WORKERS)),
            **{URL_VARIABLE: url, PAUSE_VARIABLE: str(pause)},
        )
        faults.until(
            lambda: len(faults.live_workers(client)) == WORKERS or not workers.running,
            what=f"{WORKERS} workers in the group",
            within=START_SECONDS,
        )
        return workers

    def stop_one(self, client: Redis, sampler: Sampler) -> OwnedEntries:
        """Stop one worker gracefully, and print the number of entries that it handed back."""
        sampler.mark("one worker stopped")
        stopped = faults.stop_one(client)
        self.console.say(
            f"{stopped.consumer} was stopped with SIGTERM and handed back "
            f"{len(stopped.entries):,} entries that it had not started"
        )
        return stopped

    def kill_one(self, client: Redis, sampler: Sampler) -> OwnedEntries:
        """Kill one worker while it owns entries, and print their number."""

        def seen(owner: OwnedEntries) -> None:
            self.console.say(
                f"{owner.consumer} is paused (SIGSTOP) and owns {len(owner.entries):,} pending "
                "entries"
            )

        killed = faults.pause_and_kill_one(client, seen=seen)
        sampler.mark("one worker killed")
        self.console.say(f"{killed.consumer} was killed with SIGKILL")
        return killed

    def make_tables(self, url: str) -> None:
        """Run ``headwater pipeline run`` on a copy of pipeline.toml with the variables' values, so that a user can
        run the copy again."""
        inputs = self.place / "inputs"
        inputs.mkdir()
        for name in ("airlines", "airports", "weather"):
            with data.opened(data.find(name)) as text:
                (inputs / f"{name}.csv").write_text(text.read(), encoding="utf-8")
        declared = resources.files("headwater.demo").joinpath("pipeline.toml").read_text("utf-8")
        for variable, value in ((URL_VARIABLE, url), (INPUTS_VARIABLE, str(inputs))):
            declared = declared.replace(f"${{{variable}}}", value)
        (self.place / "pipeline.toml").write_text(declared, encoding="utf-8")
        spark = self.children.headwater(
            "spark", "pipeline", "run", str(self.place / "pipeline.toml"), "--once"
        )
        for line in spark.lines_with(" rows in ", within=SPARK_SECONDS):
            self.console.say(line)
        if spark.process.returncode:
            raise spark.failure("could not make the tables")

    def write_report(self, lines: list[Line], work: WorkResult) -> Path:
        """Write the report and return its path."""
        path = self.place / "report.html"
        written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        page = report.page(
            title=f"{self.flights:,} flights, from bytes to tables",
            shown=shown(work.published, workers=WORKERS, stopped=work.stopped, killed=work.killed),
            facts=[("date", written), ("machine", machine()), *self.facts],
            lines=lines,
            delays=read_delays(self.place / "tables"),
            samples=work.sampler.samples,
            events=work.sampler.events,
            ended={
                work.killed.consumer: "the killed worker",
                work.stopped.consumer: "the stopped worker",
            },
        )
        path.write_text(page, encoding="utf-8")
        return path

    def leave_running(self, server: Child, url: str) -> None:
        """Leave the server running, and print commands that inspect and end it."""
        self.children.kept.add(server.name)
        port = url.rpartition(":")[2]
        self.console.block(
            f"The server is left running at {url}; everything else is in {self.place}. Look around:\n"
            f"  redis-cli -p {port} XINFO STREAM {STREAM}\n"
            f"  headwater dead list {STREAM} --url {url}\n"
            f"  headwater pipeline run {self.place / 'pipeline.toml'}\n"
            f"and end it:\n"
            f"  kill {server.pid}; rm -r {self.place}"
        )

    # --- output -----------------------------------------------------------------------------------

    def begin(self, step: str, text: str) -> None:
        """Begin the next step; record the duration of the last one."""
        self.end_step()
        self._step, self._step_began = step, time.monotonic()
        self.console.step(text)

    def end_step(self) -> None:
        """Record the duration of the step. Raises `KeyboardInterrupt` if a signal has arrived, so that the run
        ends before a server is left running."""
        self.look()
        if self._step:
            self.facts.append((self._step, f"{time.monotonic() - self._step_began:.1f} s"))

    def times(self) -> str:
        """Return the duration of each step, as text."""
        return ", ".join(f"{step[2:]} {took}" for step, took in self.facts if step[0].isdigit())


def wait_until_settled(
    part: float, *, flights: int, sampler: Sampler, workers: Child, publishing: Publishing
) -> Sample:
    """Wait until the fraction ``part`` of all flights is enriched or dead, and return the last sample. If ``part``
    is 1, also wait until all flights are published and the group has no pending or unread entries. Raises
    `ChildFailed` if the workers end or do not make progress."""
    wanted = round(part * flights)
    last, moved = -1, time.monotonic()
    while True:
        now = sampler.take()
        done = now.enriched + now.dead
        quiet = (now.pending, now.unread) == (0, 0)
        if done >= wanted and (part < 1 or (quiet and publishing.ended)):
            return now
        if done != last:
            last, moved = done, time.monotonic()
        if not workers.running or time.monotonic() - moved > STALL_SECONDS:
            raise workers.failure(f"stopped at {done:,} of {wanted:,} flights")
        time.sleep(0.02)


# --- the report's first lines ---------------------------------------------------------------------


def shown(
    published: Published, *, workers: int, stopped: OwnedEntries, killed: OwnedEntries
) -> list[str]:
    """Return sentences that describe the run."""
    return [
        (
            f"A producer published {published.flights:,} flights, {published.corrupted.total():,} of them "
            f"corrupted on purpose; {workers} workers enriched them."
        ),
        f"One worker was stopped with SIGTERM and handed back {len(stopped.entries):,} entries.",
        (
            f"Another one was killed with SIGKILL while it owned {len(killed.entries):,} entries, "
            "which the others claimed."
        ),
        "Then Spark wrote tables, and everything was counted again.",
    ]


def machine() -> str:
    """Return the processor, memory, operating system and Python's version in one line."""
    processors = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {processors} processors, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
