"""The state of a node: whether it loads, works, rests or stops, and what the end of a turn is to do."""

from __future__ import annotations

from headwater.errors import NodePoisoned
from headwater.persistence.progress import LoadProgress

LOADING = "LOADING Headwater is loading the dataset in memory"
"""The reply to commands that may not run while the store's content is loaded."""


NEVER = 1 << 62
"""Growth in bytes that a journal never reaches."""

DISK_IS_FULL = NEVER - 1
"""Growth that stands for a journal on a full disk: a checkpoint may make room, regardless of the actual growth."""


class NodeState:
    """The state of a node that was opened at ``started_ms`` (steady time)."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.loading: LoadProgress | None = None
        """Progress while the store's content is replayed, else None. Meanwhile the keyspace is empty, and
        only commands with the flag ``loading`` run, which never write."""
        self.replica = False
        """True if the node follows a primary: it does nothing by time, and changes only as the primary does."""
        self.counts_replicas = False
        """True if writes depend on the number of replicas."""
        self.synchronous = False
        """True if replies wait for replicas (``synchronous-replicas``)."""
        self.hands_over = False
        """True during a failover by hand."""
        self.restricted = False
        """True if some commands may be refused because of the three values above (`restrict`)."""
        self.poisoned: NodePoisoned | None = None
        """The error with which every request is refused; None while the node works."""
        self.rests_until = 0.0
        """Monotonic time, in seconds, until which the node's own work rests after an internal error (faults.py)."""
        self.stopping = False
        """True after SHUTDOWN. The driver stops the node after releasing the output."""
        self.checkpoint_at = NEVER
        """Growth of the journal since the last image, in bytes, at which the end of a turn begins a
        checkpoint."""
        self.writes_image_at_stop = True
        """True if a clean stop may write an image; False after SHUTDOWN NOSAVE."""
        self.expires_by_itself = True
        """True if expired keys are deleted without access to them (DEBUG SET-ACTIVE-EXPIRE)."""
        self.reload_wanted = False
        """True if DEBUG RELOAD is to run once this turn is in the journal, before its replies are sent."""

    def restrict(self) -> None:
        """Compute `restricted`. Call this after a change of ``loading``, ``replica`` or ``counts_replicas``."""
        self.restricted = self.replica or self.counts_replicas or self.loading is not None
