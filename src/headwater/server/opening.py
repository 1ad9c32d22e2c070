"""Opens a data directory as a node.

    Opening ──▶ node, empty: refuses commands on keys with LOADING
       │ steps: the journal is replayed
       ▼
    node with its content

Recovery is never silent: every cut and every note is logged. ``Journal.recovery`` retains them for
INFO and ``client.recovery``.
"""

from __future__ import annotations

from pathlib import Path

from headwater.common.clock import Clock, StandingClock, SystemClock
from headwater.common.moments import iso_time
from headwater.common.steps import Steps, do_all
from headwater.config.config import Config
from headwater.journal.disk.files import DiskFiles, Files
from headwater.journal.disk.regular import check_not_of_redis
from headwater.journal.format.failures import reading
from headwater.journal.log.journal import Journal
from headwater.persistence.progress import LoadProgress
from headwater.persistence.reading import keyspace_at
from headwater.persistence.replaying import log_recovery, replay_steps
from headwater.server.services.acl.access import AccessControl
from headwater.server.turn.node import Node

_NAMES_OF_REDIS = ("dbfilename", "appendfilename", "appenddirname")
"""The settings that name the files that Redis writes."""


class Opening:
    """A data directory that is being opened: ``files`` or, if that is None, ``config.dir``. With ``appendonly no``
    and no save points the node writes nothing to disk, and there is nothing to load.

    ``node`` exists from the start and can serve clients between the steps of `steps`, in the same thread. The
    constructor locks the directory and examines its files. It raises `StoreInUse`, `StoreUnusable`,
    `JournalDamaged`, or `ConfigError` for invalid definitions of users. After an error, the data is unchanged.
    """

    def __init__(
        self, config: Config, *, clock: Clock | None = None, files: Files | None = None
    ) -> None:
        clock = clock if clock is not None else SystemClock()
        access = AccessControl(config.located())
        self._config = config
        self._journal: Journal | None = None
        self._progress: LoadProgress | None = None
        if files is None:
            check_not_of_redis(Path(config.dir), {config.get(name) for name in _NAMES_OF_REDIS})
        if config.keeps_data:
            directory = files if files is not None else DiskFiles(config.dir)
            self._journal = Journal.open(directory, policy=config.journal_policy, clock=clock)
            self._progress = LoadProgress(clock)
        self.node = Node(config=config, clock=clock, access=access, loading=self._progress)

    def steps(self) -> Steps[None]:
        """Replay the journal in steps, then install the result in the node. Logs the progress.

        Raises `JournalDamaged` and `StoreUnusable`, in which case the data on disk is unchanged.
        """
        journal, progress = self._journal, self._progress
        if journal is None or progress is None:
            return
        keyspace = yield from replay_steps(journal, self._config, progress)
        progress.end()
        log_recovery(journal.recovery, keyspace)
        policy = self.node.services.config.journal_policy
        if policy != journal.policy:  # CONFIG SET changed it during the loading
            journal.set_policy(policy)
        self.node.load(keyspace, journal)

    def abandon(self) -> None:
        """Unlock the directory if the steps have not ended. In that case the data on disk is unchanged."""
        if self._journal is not None and self.node.journal is None:
            self._journal.close()


def reopen_steps(node: Node, progress: LoadProgress, files: Files | None = None) -> Steps[None]:
    """Load the store in the directory of a node that was unloaded (`Node.unload`), or in ``files``, in steps.

    Raises `StoreInUse`, `JournalDamaged` and `StoreUnusable`; the node then stays unloaded.
    """
    config = node.services.config
    directory = files if files is not None else DiskFiles(config.dir)
    journal = Journal.open(directory, policy=config.journal_policy, clock=node.clock)
    keyspace = yield from replay_steps(journal, config, progress)
    progress.end()
    log_recovery(journal.recovery, keyspace)
    node.load(keyspace, journal)


def open_node(config: Config, *, clock: Clock | None = None, files: Files | None = None) -> Node:
    """Return a node whose state is replayed from the journal in ``config.dir``. With ``appendonly no``
    and no save points the node is empty and writes nothing to disk.

    Raises `StoreInUse`, `StoreUnusable`, `JournalDamaged`, or `ConfigError` for invalid definitions of
    users; the data on disk is then unchanged.
    """
    opening = Opening(config, clock=clock, files=files)
    try:
        do_all(opening.steps())
    except BaseException:
        opening.abandon()
        raise
    return opening.node


def open_past(config: Config, at_ms: int) -> tuple[Node, Files]:
    """Return a node with the state that the store in ``config.dir`` had at ``at_ms``, Unix milliseconds, and its
    files, which the caller must unlock. The node refuses changes with READONLY, and its clock stands still.

    Raises `StoreInUse`, `JournalDamaged`, and `StoreUnusable` if the state at ``at_ms`` is not available.
    """
    files = DiskFiles(config.dir)
    files.lock_to_read()
    try:
        with reading(files):
            keyspace = keyspace_at(files, at_ms)
        node = Node(keyspace=keyspace, config=config, clock=StandingClock(at_ms))
    except BaseException:
        files.unlock()
        raise
    refusal = (
        f"READONLY this is the store as it was at {iso_time(at_ms)}, which cannot be changed. To continue from "
        "there, use `headwater restore --at`"
    )
    node.records.admission = lambda _size: refusal
    return node, files
