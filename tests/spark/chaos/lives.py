"""One life of a query: a growing stream, one checkpoint, one sink, and processes that are killed.

kinds     driver     the JVM, the Python that started it, or both, at random moments
          executor   Python workers and planners of local[*]; executors' JVMs of a real cluster
          commit     the driver, when a sink has a batch and Spark has not logged it
          store      the server, which syncs each write; it starts again with its data
          restored   the server, which starts again with an older copy of its data: the query must fail and name the
                     stream
          twice      nobody: a second driver runs the query with the same checkpoint, and one of them must be refused
verdict   the sink contains the id of each added entry, once (I10)
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import redis

from headwater.testing.server import ServerProcess
from tests.alarms import alarms_in
from tests.spark.chaos.driver_options import ENTRIES_A_BATCH, STREAM, VICTIMS, DriverOptions
from tests.spark.chaos.processes import PATIENCE_SECONDS, Driver, DriverLost, busy
from tests.spark.chaos.way import Way
from tests.spark.chaos.ways import WAYS
from tests.spark.cluster import Cluster, standalone_cluster

Kind = Literal["driver", "executor", "commit", "store", "restored", "twice"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

OF_SERVERS: Final = ("store", "restored")
"""Kinds that stop the server; it is Headwater, which syncs each write."""

KILLS_OF: Final[dict[Kind, int]] = {
    "driver": 4,
    "executor": 20,
    "commit": 4,
    "store": 8,
    "restored": 1,
    "twice": 2,
}
"""Kills in one life: a driver's costs the start of a session, an executor's costs a task."""

SPREAD_SECONDS: Final = 0.7
"""The maximum delay of a kill after the start of a batch, so that it may hit any of its steps."""

CATCH_SECONDS: Final = 3.0
"""How long to wait for a process to be busy, which it is for some milliseconds per batch."""

BURSTS_A_SECOND: Final = 20
ENTRIES_A_BURST: Final = (5, 120)
BATCHES_AHEAD: Final = 5
"""The maximum backlog of the stream, so that the last driver finishes soon."""


@dataclass
class Life:
    """What happened in one life."""

    kind: Kind
    way: str
    store: str
    seed: int
    entries: int = 0
    moments: list[str] = field(default_factory=list)
    """For each kill: what was killed, and how far the query was."""
    queries_failed: int = 0
    tasks_failed: int = 0
    left_over: int = 0
    """Processes that outlived the driver that had started them, and were killed at the end."""
    failures: list[str] = field(default_factory=list)

    @property
    def trials(self) -> int:
        return len(self.moments)


def live(
    kind: Kind,
    way: str,
    *,
    store: str,
    url: str,
    seed: int,
    kills: int,
    server: ServerProcess | None = None,
) -> Life:
    """Run one life with ``kills`` kills, and check its sink. ``server`` is the store, for kinds that stop it."""
    life = Life(kind, way, store, seed)
    directory = Path(tempfile.mkdtemp(prefix="hw-chaos-"))
    try:
        with redis.Redis.from_url(url, protocol=2) as client:
            client.flushall()
            trial = _Trial(life, WAYS[way], client, directory, url, server)
            run: dict[Kind, Callable[[int], None]] = {
                "driver": trial.drivers,
                "executor": trial.executors,
                "commit": trial.commits,
                "store": trial.stores,
                "restored": trial.restores,
                "twice": trial.twice,
            }
            try:
                run[kind](kills)
            except DriverLost as lost:
                life.failures.append(str(lost))
            finally:
                trial.clear()
            if kind != "restored":
                trial.judge()
            if server is not None:
                said = alarms_in(server.log())
                life.failures += [f"a false alarm of the server: {line}" for line in said]
    finally:
        # Keep the files of a failure for inspection.
        if life.failures:
            life.failures.append(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return life


class _Trial:
    def __init__(
        self,
        life: Life,
        way: Way,
        client: redis.Redis,
        directory: Path,
        url: str,
        server: ServerProcess | None,
    ) -> None:
        self._life, self._way, self._client = life, way, client
        self._server = server
        self._directory, self._url = directory, url
        self._chance = random.Random(life.seed)
        self._added: list[str] = []
        self._drivers: list[Driver] = []

    # --- kinds ------------------------------------------------------------------------------------

    def drivers(self, kills: int) -> None:
        """Kill each driver after a few batches, and start the next one immediately."""
        for _ in range(kills):
            driver = self._start()
            with self._growing():
                self._await_moment(driver, batches=self._chance.randint(0, 4))
                where = self._standing()
                victim = self._chance.choice(VICTIMS)
                driver.strike(victim)
            self._life.moments.append(f"{victim} {where}")
        self._finish()

    def commits(self, kills: int) -> None:
        """Let each driver die when its sink has a batch: the next one, or one of those after it."""
        for _ in range(kills):
            victim = self._chance.choice(VICTIMS)
            after = self._logged("commits") + self._chance.randint(1, 4)
            driver = self._start(die_after=after, victim=victim)
            with self._growing():
                driver.await_end()
            if self._logged("offsets") == self._logged("commits"):
                raise DriverLost(f"the driver died too early or too late\n{driver.errors()}")
            self._life.moments.append(f"{victim} {self._standing()}")
        self._finish()

    def executors(self, kills: int) -> None:
        """Kill the helper processes of one driver, one after the other."""
        with ExitStack() as stack:
            cluster = None
            if self._chance.random() < 0.5:
                cluster = stack.enter_context(standalone_cluster(workers=2, cores=1))
            driver = self._start(**_on_cluster(cluster))
            with self._growing():
                for _ in range(kills):
                    self._await_moment(driver, batches=self._chance.randint(0, 1))
                    hit = self._strike_helper(driver, cluster)
                    self._life.moments.append(f"{hit} {self._standing()}")
            self._finish(driver)

    def stores(self, kills: int) -> None:
        """Kill the server, and start it again with its data, while one driver goes on."""
        assert self._server is not None
        driver = self._start()
        with self._growing():
            for _ in range(kills):
                self._await_moment(driver, batches=self._chance.randint(0, 3))
                self._life.moments.append(f"store {self._standing()}")
                self._server.kill()
                time.sleep(self._chance.uniform(0, 2))
                self._server.start()
        self._finish(driver)
        # What the server had not answered may be there or not; what it had answered must be.
        there = self._way.added(self._client)
        self._life.failures += [f"the store lost {id_}" for id_ in self._added if id_ not in there]
        self._added = sorted(there)

    def restores(self, _kills: int) -> None:
        """Replace the server's data by an older copy of them; the query must fail, and name a stream."""
        assert self._server is not None
        data, copy = self._server.data, self._directory / "older"
        driver = self._start()
        with self._growing():
            self._await_moment(driver, batches=2)
        self._server.kill()
        shutil.copytree(data, copy)
        self._server.start()
        with self._growing():
            self._await_moment(driver, batches=BATCHES_AHEAD + 3)  # beyond what the copy has
        self._server.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        self._life.moments.append(f"restored {self._standing()}")
        before = len(driver.failed)
        self._server.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(repr(STREAM) in text for text in driver.failed[before:]):
            if time.monotonic() > deadline:
                raise DriverLost(f"the restored copy was not noticed\n{driver.errors()}")
            driver.said()
            time.sleep(0.05)

    def twice(self, kills: int) -> None:
        """Start a second driver with the same checkpoint; one of the two must be refused."""
        driver = self._start()
        with self._growing():
            for _ in range(kills):
                self._await_moment(driver, batches=1)
                self._life.moments.append(f"second driver {self._standing()}")
                second = self._start()
                self._await_refusal(driver, second)
                self._drivers.remove(second)
                second.clear()
        self._finish(driver)

    @staticmethod
    def _await_refusal(first: Driver, second: Driver) -> None:
        """Wait until the query of one of two drivers has failed; the second one may end at once."""
        before = len(first.failed)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(first.failed) == before and not second.failed:
            if time.monotonic() > deadline:
                raise DriverLost("two drivers went on with one checkpoint")
            first.said()
            with suppress(DriverLost):
                second.said()
            time.sleep(0.05)

    def _strike_helper(self, driver: Driver, cluster: Cluster | None) -> str:
        """Kill a process that works for the driver, preferably a busy one; return its kind."""
        finds: dict[str, Callable[[], list[int]]] = {"planner": driver.planners}
        if cluster is None:
            finds["worker"] = driver.running_workers
        else:
            finds["executor"] = cluster.executors
        what = self._chance.choices(list(finds), (1, 4))[0]
        at_work = self._chance.random() < 0.7
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE_SECONDS:
            driver.said()
            pids = finds[what]()
            waited = time.monotonic() - began
            found = [pid for pid in pids if busy(pid) or not at_work or waited > CATCH_SECONDS]
            if found:
                with suppress(ProcessLookupError):
                    os.kill(self._chance.choice(found), signal.SIGKILL)
                    return what
            time.sleep(0.005)  # there is no notification when a worker starts
        raise DriverLost(f"there was no {what} to kill\n{driver.errors()}")

    # --- drivers ----------------------------------------------------------------------------------

    def _start(self, **orders: Any) -> Driver:
        driver = Driver(DriverOptions(self._url, str(self._directory), self._way.name, **orders))
        self._drivers.append(driver)
        driver.await_up()
        return driver

    def _finish(self, driver: Driver | None = None) -> None:
        """Let a driver read all remaining entries without being killed."""
        driver = driver or self._start()
        self._life.tasks_failed += driver.finish()

    def clear(self) -> None:
        """End the remaining processes."""
        for driver in self._drivers:
            with suppress(DriverLost):
                driver.said()
            self._life.queries_failed += len(driver.failed)
            self._life.left_over += driver.clear()

    # --- moments ----------------------------------------------------------------------------------

    @contextmanager
    def _growing(self) -> Iterator[None]:
        """Add entries in bursts while the block runs."""
        ended = threading.Event()

        def add() -> None:
            chance = random.Random(self._chance.random())
            while not ended.wait(chance.uniform(0, 2 / BURSTS_A_SECOND)):
                with suppress(*self._outages()):
                    taken = self._way.taken(self._client, self._logged("offsets") + 1)
                    if len(self._added) < taken + BATCHES_AHEAD * ENTRIES_A_BATCH:
                        self._add(chance, chance.randint(*ENTRIES_A_BURST))
                        self._way.retire(self._client, self._directory)

        self._add(self._chance, 100)
        thread = threading.Thread(target=add)
        thread.start()
        try:
            with self._way.alongside(self._url):
                yield
        finally:
            ended.set()
            thread.join()

    def _add(self, chance: random.Random, count: int) -> None:
        pipeline = self._client.pipeline(transaction=False)
        streams: list[str] = []
        for _ in range(count):
            text = "x" * chance.choice((0, 10, 1000))
            streams.append(self._way.stream(chance))
            pipeline.xadd(streams[-1], {"n": len(self._added), "text": text})
        ids = zip(streams, pipeline.execute(), strict=True)
        self._added += [self._way.identity(stream, id_.decode()) for stream, id_ in ids]
        self._life.entries = len(self._added)

    def _outages(self) -> tuple[type[Exception], ...]:
        """Return the errors of a server that is being started again."""
        if self._server is None:
            return ()
        return redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError

    def _await_moment(self, driver: Driver, *, batches: int) -> None:
        """Wait for a random moment after the start of one of the next batches."""
        begun = self._logged("offsets") + batches
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._logged("offsets") < begun:
            driver.said()
            if time.monotonic() > deadline:
                raise DriverLost(f"no batch began\n{driver.errors()}")
            time.sleep(0.002)  # there is no notification of another process's new files
        time.sleep(self._chance.uniform(0, SPREAD_SECONDS))

    def _logged(self, log: str) -> int:
        """Return the last batch in one of the checkpoint's logs; -1 before the first."""
        place = self._way.checkpoint(self._directory) / log
        names = [path.name for path in place.iterdir()] if place.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _standing(self) -> str:
        """Describe how far the query is."""
        begun, done = self._logged("offsets"), self._logged("commits")
        return f"in batch {begun}" if begun > done else f"after batch {done}"

    # --- verdict ----------------------------------------------------------------------------------

    def judge(self) -> None:
        """Compare the contents of the sink with the entries that were added."""
        held = self._way.ids(self._directory, self._client)
        self._life.failures += verdict(Counter(self._added), held)


def verdict(added: Counter[str], held: Counter[str]) -> list[str]:
    """Return which added ids a sink lacks, and which it has in excess."""
    lost, more = added - held, held - added
    found = []
    if lost:
        found.append(f"lost {lost.total()}: {sorted(lost)[:20]}")
    if more:
        found.append(f"too many {more.total()}: {sorted(more)[:20]}")
    return found


def _on_cluster(cluster: Cluster | None) -> dict[str, Any]:
    """Return the driver's options for a cluster on which any number of executors may die."""
    if cluster is None:
        return {}
    path = os.pathsep.join(str(Path(__file__).resolve().parents[3] / room) for room in ("src", ""))
    conf = {
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "100",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": path,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    return {"master": cluster.master, "conf": conf}
