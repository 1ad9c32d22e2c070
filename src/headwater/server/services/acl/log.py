"""Refusals, newest first, as ACL LOG shows them.

Rule 1. What repeats within a minute is counted, not listed again.
Rule 2. An entry names the command, key, channel or the word (AUTH, HELLO) that was refused, never an
        argument that may be a password.

Source: Redis, acl.c, addACLLogEntry.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPING_MS = 60_000
LOOKED_AT = 10
"""How many of the newest entries a refusal is compared with, so that a flood of them stays cheap."""

AUTH = "auth"
KINDS = (AUTH, "command", "key", "channel")


@dataclass
class AclRefusal:
    """One entry; ``kind`` is what was refused, ``context`` toplevel, multi or lua. Times are steady."""

    number: int
    kind: str
    context: str
    object: bytes
    user: bytes
    client: bytes
    created_ms: int
    updated_ms: int
    count: int = 1

    def repeats(self, other: AclRefusal) -> bool:
        """Whether the two are told as one."""
        return (self.kind, self.context, self.object, self.user) == (
            other.kind,
            other.context,
            other.object,
            other.user,
        ) and abs(self.updated_ms - other.updated_ms) <= GROUPING_MS


class AccessLog:
    """The refusals of a node; at most ``max_length`` are kept.

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
        """How often each kind was refused since the start, for INFO."""
        self._next_number = 0

    def add(
        self, kind: str, *, context: str, about: bytes, user: bytes, client: bytes, now_ms: int
    ) -> None:
        """Remember a refusal."""
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

    def trim(self) -> None:
        """Keep the newest only."""
        del self.entries[self.max_length :]

    def reset(self) -> None:
        """Forget all entries; the counts stay."""
        self.entries.clear()
