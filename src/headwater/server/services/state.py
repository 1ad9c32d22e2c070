"""The state of a node: whether it can continue, and what to do after a commit."""

from __future__ import annotations

from headwater.errors import NodePoisoned


class NodeState:
    """The state of a node that was opened at ``started_ms`` (steady time)."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.poisoned: NodePoisoned | None = None
        """The error with which every request is refused; None while the node works."""
        self.stopping = False
        """Set by SHUTDOWN. The driver stops the node after releasing the output."""
        self.expires_by_itself = True
        """Whether expired keys are deleted without access to them (DEBUG SET-ACTIVE-EXPIRE)."""
        self.reload_wanted = False
        """Whether to run DEBUG RELOAD once this turn is in the journal, before its replies are sent."""
