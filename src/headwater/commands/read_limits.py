"""How much one read gives: COUNT bounds each stream, MAXCOUNT and MAXSIZE all streams together.

Rule 1. Streams are served in the order in which they are named. Once a bound of the whole reply is
        reached, the streams behind are left out, and nothing of them is delivered.
Rule 2. MAXSIZE is soft: the entry that reaches it is the last one, so one entry always comes. Counted
        are the bytes of the names of streams and of the entries as they stand in the reply.

Source: Redis's command pages of XREAD and XREADGROUP (8.10).
"""

from __future__ import annotations

_BULK_FRAME = len(b"$\r\n\r\n")


class ReadLimits:
    """The bounds of one command, -1 for none, and what it has given so far."""

    def __init__(self) -> None:
        self.count = -1
        self.maxcount = -1
        self.maxsize = -1
        self.entries = 0
        self.size = 0

    def share(self, key: bytes) -> Share:
        """What the next stream, at ``key``, may give."""
        share = Share()
        share.begin(self, key)
        return share

    def most(self) -> int:
        """How many entries the next stream may give by their number; -1 for all."""
        if self.maxcount < 0:
            return self.count
        left = self.maxcount - self.entries
        return left if self.count < 0 else min(self.count, left)


class Share:
    """What one stream may give, and what it gives, from `ReadLimits.share`; `close` when that is settled.

    >>> limits = ReadLimits()
    >>> limits.maxcount, limits.maxsize = 3, 40
    >>> share = limits.share(b"orders")
    >>> share.left(), share.full()
    (3, False)
    >>> share.add(30)
    >>> share.left(), share.full()
    (2, True)
    """

    def __init__(self) -> None:
        self.most = -1
        self.maxsize = -1
        self.taken = 0
        self.size = 0

    def begin(self, limits: ReadLimits, key: bytes) -> None:
        """Be the share of the stream at ``key``."""
        self.limits = limits
        self.most = limits.most()
        self.maxsize = limits.maxsize
        self.size = limits.size
        if self.maxsize >= 0:
            self.size += len(key) + len(str(len(key))) + _BULK_FRAME
            if 0 < limits.entries and limits.maxsize <= limits.size:
                self.most = 0

    def left(self) -> int:
        """How many entries more may come by their number; -1 for all."""
        return self.most if self.most < 0 else self.most - self.taken

    def full(self) -> bool:
        """Not one entry more may come."""
        if self.taken == self.most:
            return True
        return 0 <= self.maxsize <= self.size and self.taken + self.limits.entries > 0

    def add(self, size: int) -> None:
        """One entry of ``size`` bytes comes."""
        self.taken += 1
        self.size += size

    def close(self) -> None:
        """The stream gives what was added, and nothing more."""
        if self.taken:
            self.limits.entries += self.taken
            self.limits.size = self.size
