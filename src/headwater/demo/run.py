"""The story, from a server that starts to a report that is written: see `Demo.run`.

Whatever lasts longer than a moment is a process of its own, started as a user would start it:
``headwater serve``, ``headwater work``, ``headwater pipeline run``.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import headwater
from headwater.demo import data, faults, reconcile, report
from headwater.demo.children import Child, Children, interrupted_by_signals
from headwater.demo.evidence import Held, collect, group_counts
from headwater.demo.names import (
    APP,
    ENRICHED,
    INPUTS_VARIABLE,
    PAUSE_VARIABLE,
    PAUSING,
    STREAM,
    URL_VARIABLE,
)
from headwater.demo.producer import Published, Publishing
from headwater.demo.reconcile import Line
from headwater.demo.sampling import Sample, Sampler
from headwater.demo.spoil import plan
from headwater.demo.tables import read_delays
from headwater.demo.telling import Teller
from headwater.messages import dead_letter_stream

if TYPE_CHECKING:
    from redis import Redis

LEAST_FLIGHTS = 1_000
"""A run of fewer is over before anything can be shown."""

SEED = 2013

WORKERS = 3

STOP_AT, KILL_AT = 0.2, 0.4
"""Parts of the work after which a worker is stopped, and another one is killed."""

SHORT_FLIGHTS = 60_000
SHORT_SECONDS = 6.0
"""A run of fewer flights than that waits over each, so that the work takes about so long."""

START_SECONDS = 60.0
STALL_SECONDS = 60.0
"""Not one flight more in that time: many times longer than any claim takes to be due."""
SPARK_SECONDS = 900.0


class Order(NamedTuple):
    """What the command line asks for."""

    flights: int = data.FLIGHTS
    seed: int = SEED
    keep: bool = False


class DemoResult(NamedTuple):
    """What came out: the reconciliation, and where the report is."""

    lines: list[Line]
    report: Path


class Worked(NamedTuple):
    """What is known about the work, for the reconciliation and the report."""

    published: Published
    stopped: Held
    killed: Held
    sampler: Sampler


def run(order: Order, teller: Teller) -> DemoResult:
    """Run the demo in a new temporary directory; its processes end with it, however it ends.

    The directory keeps the report, and everything else only if a line does not hold or ``keep`` is
    asked for. Raises `HeadwaterError` for what is not installed and for a process that failed.
    """
    check_installed()
    place = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        with interrupted_by_signals(), Children(place / "logs") as children:
            outcome = Demo(order, teller, place, children).run()
    except KeyboardInterrupt:
        shutil.rmtree(place, ignore_errors=True)
        raise
    except BaseException:
        teller.say(f"what is left to look at lies in {place}")
        raise
    if not order.keep and all(line.holds for line in outcome.lines):
        for rest in [path for path in place.iterdir() if path != outcome.report]:
            shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
    return outcome


def check_installed() -> None:
    """Say now what is missing, not after the first minute."""
    from headwater.spark.java import find_java

    data.directory()
    missing = [name for name in ("matplotlib", "pyarrow", "pyspark") if find_spec(name) is None]
    if missing:
        raise data.DataMissing(
            f"{', '.join(missing)} not installed: pip install 'headwater[demo,spark]'"
        )
    find_java()


class Demo:
    """One run, in the directory ``place``."""

    def __init__(self, order: Order, teller: Teller, place: Path, children: Children) -> None:
        self.order = order
        self.teller = teller
        self.place = place
        self.children = children
        self.facts: list[tuple[str, str]] = []
        self._step = ""
        self._step_began = 0.0

    def run(self) -> DemoResult:
        """The six steps."""
        self.begin("1 server", "A server with a journal")
        server, url = self.serve()
        client = headwater.connect(url)
        self.begin(
            "2 producer",
            f"A producer publishes {self.order.flights:,} flights, one in a thousand of them spoiled",
        )
        flights = data.flights(limit=self.order.flights)
        worked = self.work(client, url, flights)
        self.begin("4 Spark", f"Spark turns {ENRICHED} into tables")
        self.make_tables(url)
        self.begin("5 reconciliation", "Everything is counted again")
        evidence = collect(
            client,
            worked.published,
            killed=worked.killed,
            stopped=worked.stopped,
            tables=self.place / "tables",
        )
        lines = reconcile.lines(evidence)
        self.teller.block(reconcile.text(lines))
        self.begin("6 report", "A report with plots")
        path = self.write_report(lines, worked)
        self.end_step()
        self.teller.say(f"{path}")
        self.teller.say(f"{self.teller.seconds:.0f} seconds in all: {self.times()}")
        if self.order.keep:
            self.leave_running(server, url)
        return DemoResult(lines, path)

    # --- the steps --------------------------------------------------------------------------------

    def serve(self) -> tuple[Child, str]:
        """Start a server on a free port; it and its url."""
        server = self.children.headwater(
            "server", "serve", "--port", "0", "--dir", str(self.place / "data")
        )
        ready = server.line_with(" ready at ", within=START_SECONDS)
        self.teller.say(ready)
        self.facts.append(("server", ready))
        return server, "redis://" + ready.partition(" ready at ")[2].partition(",")[0]

    def work(self, client: Redis, url: str, flights: list[data.Flight]) -> Worked:
        """Publish, while three workers enrich, one is stopped and one is killed."""
        spoiled = len(plan(len(flights), seed=self.order.seed))
        totals = {"published": len(flights), "enriched": len(flights) - spoiled}
        with self.teller.progress(totals) as advance:

            def seen(sample: Sample) -> None:
                advance({"published": sample.published, "enriched": sample.enriched})

            with (
                Sampler(client, seen=seen) as sampler,
                Publishing(client, flights, seed=self.order.seed) as publishing,
            ):
                self.begin(
                    "3 workers", f"{WORKERS} workers enrich them; one is stopped, one is killed"
                )
                workers = self.start_workers(client, url)
                wait = SettlementWait(client, workers, publishing, len(flights))
                wait.until(STOP_AT)
                stopped = self.stop_one(client, sampler)
                wait.until(KILL_AT)
                killed = self.kill_one(client, sampler)
                wait.until(1.0)
                seen(sampler.take())
                published = publishing.result()
        workers.send(signal.SIGTERM)
        status = workers.wait(within=START_SECONDS)
        if status:
            raise workers.failure(f"were told to stop and ended with status {status}")
        return Worked(published, stopped, killed, sampler)

    def start_workers(self, client: Redis, url: str) -> Child:
        """``headwater work``; returns when each of its processes is in the group."""
        short = self.order.flights < SHORT_FLIGHTS
        pause = SHORT_SECONDS * WORKERS * PAUSING / self.order.flights if short else 0
        workers = self.children.headwater(
            "workers",
            *("work", APP, "--workers", str(WORKERS)),
            **{URL_VARIABLE: url, PAUSE_VARIABLE: str(pause)},
        )
        faults.until(
            lambda: len(faults.crew(client)) == WORKERS or not workers.running,
            what=f"{WORKERS} workers in the group",
            within=START_SECONDS,
        )
        return workers

    def stop_one(self, client: Redis, sampler: Sampler) -> Held:
        """Stop one worker gracefully, and say what it handed back."""
        sampler.mark("one worker stopped")
        stopped = faults.stop_one(client)
        self.teller.say(
            f"{stopped.consumer} was stopped with SIGTERM and handed back "
            f"{len(stopped.entries):,} entries that it had not begun"
        )
        return stopped

    def kill_one(self, client: Redis, sampler: Sampler) -> Held:
        """Kill one worker while it owns entries, and say how many."""

        def seen(owner: Held) -> None:
            self.teller.say(
                f"{owner.consumer} stands still (SIGSTOP) and owns {len(owner.entries):,} pending "
                "entries"
            )

        killed = faults.stop_and_kill_one(client, seen=seen)
        sampler.mark("one worker killed")
        self.teller.say(f"{killed.consumer} was killed with SIGKILL")
        return killed

    def make_tables(self, url: str) -> None:
        """``headwater pipeline run`` on pipeline.toml, with its variables filled in, so that it can
        be run again by hand."""
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
            self.teller.say(line)
        if spark.process.returncode:
            raise spark.failure("could not make the tables")

    def write_report(self, lines: list[Line], worked: Worked) -> Path:
        """The report; its path."""
        path = self.place / "report.html"
        report.write(
            report.Story(
                title=f"{self.order.flights:,} flights, from bytes to tables",
                facts=self.facts,
                lines=lines,
                delays=read_delays(self.place / "tables"),
                samples=worked.sampler.samples,
                events=worked.sampler.events,
            ),
            path,
        )
        return path

    def leave_running(self, server: Child, url: str) -> None:
        """Spare the server, and say what can be done with it."""
        self.children.spare.add(server.name)
        port = url.rpartition(":")[2]
        self.teller.block(
            f"The server is left running at {url}, everything else in {self.place}. Look around:\n"
            f"  redis-cli -p {port} XINFO STREAM {STREAM}\n"
            f"  headwater dead list {STREAM} --url {url}\n"
            f"  headwater pipeline run {self.place / 'pipeline.toml'}\n"
            f"and end it:\n"
            f"  kill {server.pid}; rm -r {self.place}"
        )

    # --- telling ----------------------------------------------------------------------------------

    def begin(self, step: str, text: str) -> None:
        """Begin the next step; the last one's seconds become a fact."""
        self.end_step()
        self._step, self._step_began = step, time.monotonic()
        self.teller.step(text)

    def end_step(self) -> None:
        """Remember how long the step took."""
        if self._step:
            self.facts.append((self._step, f"{time.monotonic() - self._step_began:.1f} s"))

    def times(self) -> str:
        """How long each step took."""
        return ", ".join(f"{step[2:]} {took}" for step, took in self.facts if step[0].isdigit())


class SettlementWait:
    """Waits for flights to be settled, as long as there is hope."""

    def __init__(self, client: Redis, workers: Child, publishing: Publishing, flights: int) -> None:
        self._client = client
        self._workers = workers
        self._publishing = publishing
        self._flights = flights

    def until(self, part: float) -> None:
        """Return when that part of all flights is enriched or dead; for all of them, when nothing
        is pending or unread either."""
        wanted = round(part * self._flights)
        last, moved = -1, time.monotonic()
        while True:
            done = self._settled()
            if done >= wanted and (part < 1 or self._quiet()):
                return
            if done != last:
                last, moved = done, time.monotonic()
            if not self._workers.running or time.monotonic() - moved > STALL_SECONDS:
                raise self._workers.failure(f"got no further than {done:,} of {wanted:,} flights")
            time.sleep(0.02)

    def _settled(self) -> int:
        return sum(self._client.xlen(name) for name in (ENRICHED, dead_letter_stream(STREAM)))

    def _quiet(self) -> bool:
        return self._publishing.ended and group_counts(self._client) == (0, 0)
