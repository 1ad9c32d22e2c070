"""A real standalone Spark cluster on loopback, from pip's pyspark: a master and its workers.

with standalone_cluster(workers=2, cores=1) as cluster:
    session(master=cluster.master)
    os.kill(cluster.executors()[0], signal.SIGKILL)

The end of the block ends all processes that it started, by process id.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree

from headwater.spark.java import java_home
from tests.jvm import QUICK_JVM
from tests.peers import free_port
from tests.processes import children, command_line, descendants

READY_SECONDS = 60.0
"""How long the workers may take to register with the master; 4 s on an idle machine."""

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class ClusterFailed(AssertionError):
    """A cluster did not start; the text contains its processes' output."""


@dataclass
class Cluster:
    """``master`` is the url for Spark; ``pages`` is the url of the master's web pages."""

    master: str
    pages: str
    directory: Path
    """Contains logs and the executors' working directories."""
    master_pid: int = 0
    worker_pids: list[int] = field(default_factory=list)

    def executors(self) -> list[int]:
        """Return the process ids of the running executors, oldest first."""
        return sorted(
            pid for worker in self.worker_pids for pid in children(worker) if _runs(pid, _EXECUTOR)
        )

    def logs(self) -> str:
        """Return the output of master, workers and executors."""
        said = [*self.directory.glob("*.log"), *self.directory.rglob("std*")]
        return "\n".join(
            f"== {path.relative_to(self.directory)}\n{path.read_text(errors='replace')}"
            for path in sorted(said)
            if path.is_file()
        )

    def state(self) -> dict[str, object]:
        """Return the master's state from its web page, as JSON."""
        with urllib.request.urlopen(f"{self.pages}/json/", timeout=5) as answer:
            found: dict[str, object] = json.load(answer)
            return found


@contextmanager
def standalone_cluster(
    workers: int = 1, cores: int = 2, *, memory: str = "1g", path: str | None = None
) -> Iterator[Cluster]:
    """Start a master and ``workers`` workers with ``cores`` each, ready for applications.

    ``path`` is the PATH of the workers and their executors. The default is the system's, without this
    Python's directory: a worker is a machine on which Headwater is not installed.
    """
    directory = Path(tempfile.mkdtemp(prefix="hw-cluster-"))
    port, pages = free_port(), free_port()
    cluster = Cluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{pages}", directory)
    started: list[subprocess.Popen[bytes]] = []
    environment = _environment(directory, path)

    def start(name: str, *words: str) -> int:
        with (directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        started.append(process)
        return process.pid

    kind = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1")
    try:
        cluster.master_pid = start(
            "master",
            f"{kind}.master.Master",
            *here,
            *("--port", str(port), "--webui-port", str(pages)),
        )
        for number in range(workers):
            pid = start(
                f"worker-{number}",
                f"{kind}.worker.Worker",
                *here,
                *("--cores", str(cores), "--memory", memory, "--webui-port", str(free_port())),
                *("--work-dir", str(directory / f"work-{number}")),
                cluster.master,
            )
            cluster.worker_pids.append(pid)
        _await(cluster, started, lambda: cluster.state().get("aliveworkers") == workers)
        yield cluster
    finally:
        _end(cluster, started)
        rmtree(directory, ignore_errors=True)


def spark_home() -> Path:
    """Return the directory in which pip has installed Spark."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _runs(pid: int, what: str) -> bool:
    return what in command_line(pid)


def _environment(directory: Path, path: str | None) -> dict[str, str]:
    """Return the environment of a machine that has only Spark, Java and a bare Python."""
    wanted = {"HOME", "LANG", "LC_ALL", "TMPDIR", "USER"}
    kept = {name: value for name, value in os.environ.items() if name in wanted}
    return {
        **kept,
        "PATH": path if path is not None else "/usr/local/bin:/usr/bin:/bin",
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": QUICK_JVM,  # also of executors
        "SPARK_NO_DAEMONIZE": "1",
    }


def _await(
    cluster: Cluster, started: list[subprocess.Popen[bytes]], ready: Callable[[], bool]
) -> None:
    """Poll the master's page until its workers are registered; there is no event to wait for."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in started):
            break
        with suppress(OSError, ValueError):
            if ready():
                return
        time.sleep(0.1)
    raise ClusterFailed(f"the cluster did not come up\n{cluster.logs()}")


def _end(cluster: Cluster, started: list[subprocess.Popen[bytes]]) -> None:
    """End all processes: workers end their executors; remaining ones are killed by id."""
    left = [each for process in started for each in descendants(process.pid)]
    for process in reversed(started):
        process.terminate()
    for process in started:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in left:
        if str(cluster.directory) in command_line(pid) or _runs(pid, _EXECUTOR):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
