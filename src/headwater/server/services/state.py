"""The state of a node as a whole: whether it goes on, and what is to be done after a commit."""

from __future__ import annotations

from headwater.errors import NodePoisoned


class NodeState:
    """One for each node, which began at ``started_ms`` (steady time)."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.poisoned: NodePoisoned | None = None
        """Why every request is refused; None while none is."""
        self.stopping = False
        """Set by SHUTDOWN; the driver stops the node after releasing what was written."""
        self.expires_by_itself = True
        """Whether keys whose time has come are deleted (DEBUG SET-ACTIVE-EXPIRE)."""
        self.reload_wanted = False
        """DEBUG RELOAD is to be done once this turn is in the journal, before its replies leave."""
