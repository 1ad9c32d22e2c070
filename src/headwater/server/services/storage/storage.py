"""The storage of a node on disk: the journal, its segments, checkpoints and compactions."""

from __future__ import annotations

import threading

from headwater.config.config import Config
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.journal.log.journal import Journal
from headwater.server.services.records import TurnRecords
from headwater.server.services.state import NodeState
from headwater.server.services.storage.checkpoints import Checkpoints
from headwater.server.services.storage.compactions import Compactions
from headwater.server.services.storage.segments import Segments
from headwater.server.services.turn_clock import TurnClock


class Storage:
    """The storage of one node. Without a journal (`open`) nothing is stored."""

    def __init__(
        self,
        config: Config,
        state: NodeState,
        times: TurnClock,
        records: TurnRecords,
        lock: threading.RLock,
    ) -> None:
        self.journal: Journal | None = None
        self.segments: Segments | None = None
        self.compactions = Compactions(config, state, times, records, lock)
        self.checkpoints = Checkpoints(config, state, times, records, self.compactions, lock)

    def open(self, journal: Journal) -> Segments:
        """Store changes in ``journal`` from now on, and return its segments. `use` must follow."""
        self.journal, self.segments = journal, Segments(journal)
        self.checkpoints.resume()
        return self.segments

    def close(self) -> None:
        """Store nothing until `open`."""
        self.journal = self.segments = None

    def use(self, keyspace: Keyspace) -> None:
        """Write checkpoints of ``keyspace`` from now on, and move its blocks, if the node has a journal."""
        if self.journal is not None:
            assert self.segments is not None
            self.compactions.use(self.journal, self.segments, keyspace)
            self.checkpoints.use(self.journal, self.segments, keyspace)

    def configure(self, config: Config) -> None:
        """Apply the settings of checkpoints and compactions."""
        self.checkpoints.configure(config)
        self.compactions.configure(config)
