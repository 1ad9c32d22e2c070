"""The state of a node: whether it can continue, and what to do after a commit."""

from __future__ import annotations

from headwater.errors import NodePoisoned
from headwater.persistence.progress import LoadProgress

LOADING = "LOADING Headwater is loading the dataset in memory"
"""The reply to commands that may not run while the store's content is loaded."""


NEVER = 1 << 62
"""More bytes than a journal ever has."""

DISK_IS_FULL = NEVER - 1
"""The growth of a journal that a full disk refuses: a checkpoint may make room, however little it has grown."""


class NodeState:
    """The state of a node that was opened at ``started_ms`` (steady time)."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.loading: LoadProgress | None = None
        """The progress while the store's content is replayed. The keyspace is empty then, and only
        commands with the flag ``loading`` run; none of them writes."""
        self.poisoned: NodePoisoned | None = None
        """The error with which every request is refused; None while the node works."""
        self.rests_until = 0.0
        """Monotonic time until which the node's own work rests, after an internal error (faults.py)."""
        self.stopping = False
        """Set by SHUTDOWN. The driver stops the node after releasing the output."""
        self.checkpoint_at = NEVER
        """A checkpoint is begun at the end of a turn if the journal has grown by this many bytes since the
        last image."""
        self.writes_image_at_stop = True
        """Whether a clean stop may write an image: not after SHUTDOWN NOSAVE."""
        self.expires_by_itself = True
        """Whether expired keys are deleted without access to them (DEBUG SET-ACTIVE-EXPIRE)."""
        self.reload_wanted = False
        """Whether to run DEBUG RELOAD once this turn is in the journal, before its replies are sent."""
