"""The log of refusals, newest first, for ACL LOG.

Rule 1. A refusal that repeats within a minute increments a count and is not listed again.
Rule 2. An entry contains the command, key or channel that was refused, or the word AUTH or HELLO,
        but never an argument that may be a password.

Source: Redis, acl.c, addACLLogEntry.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.engine.accounts.memory_account import sampled, text_bytes

GROUPING_MS = 60_000
LOOKED_AT = 10
"""Number of the newest entries with which a refusal is compared, which bounds the cost of many refusals."""

_ENTRY_BYTES = 280
"""Bytes per entry without its texts."""

AUTH = "auth"
KINDS = (AUTH, "command", "key", "channel")


@dataclass
class AclRefusal:
    """A refusal. ``kind`` is one of `KINDS`, ``context`` is toplevel, multi or lua. Times are steady, in ms."""

    number: int
    kind: str
    context: str
    object: bytes
    user: bytes
    client: bytes
    created_ms: int
    updated_ms: int
    count: int = 1

    def memory_bytes(self) -> int:
        """Return the memory of the entry."""
        return _ENTRY_BYTES + sum(map(text_bytes, (self.object, self.user, self.client)))

    def repeats(self, other: AclRefusal) -> bool:
        """Return whether the two refusals are counted as one."""
        return (self.kind, self.context, self.object, self.user) == (
            other.kind,
            other.context,
            other.object,
            other.user,
        ) and abs(self.updated_ms - other.updated_ms) <= GROUPING_MS


class AccessLog:
    """The refusals of a node, the newest ``max_length`` of them.

    >>> log = AccessLog(128)
    >>> for _ in range(2):
    ...     log.add("key", context="toplevel", about=b"k", user=b"alice", client=b"", now_ms=5)
    >>> [(entry.object, entry.count) for entry in log.entries]
    [(b'k', 2)]
    """

    def __init__(self, max_length: int) -> None:
        self.max_length = max_length
        self.entries: list[AclRefusal] = []
        self.counts = dict.fromkeys(KINDS, 0)
        """Number of refusals since the start, by kind, for INFO."""
        self._next_number = 0

    def add(
        self, kind: str, *, context: str, about: bytes, user: bytes, client: bytes, now_ms: int
    ) -> None:
        """Record a refusal."""
        self.counts[kind] += 1
        if self.max_length == 0:
            self.trim()
            return
        made = AclRefusal(self._next_number, kind, context, about, user, client, now_ms, now_ms)
        for index, known in enumerate(self.entries[:LOOKED_AT]):
            if known.repeats(made):
                known.client, known.updated_ms = client, now_ms
                known.count += 1
                self.entries.insert(0, self.entries.pop(index))
                return
        self._next_number += 1
        self.entries.insert(0, made)
        self.trim()

    def memory_bytes(self) -> int:
        """Return the memory of the entries, an estimate if there are many."""
        return sampled(self.entries, AclRefusal.memory_bytes)

    def trim(self) -> None:
        """Remove the oldest entries above ``max_length``."""
        del self.entries[self.max_length :]

    def reset(self) -> None:
        """Remove all entries. The counts remain."""
        self.entries.clear()
