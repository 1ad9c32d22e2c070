"""What a naive stream knows of idempotent producers, a dict in a dict."""

from __future__ import annotations

from dataclasses import dataclass, field

ID = tuple[int, int]
IID = bytes | tuple[tuple[bytes, bytes], ...]
"""As IDMP gives it; for IDMPAUTO the pairs themselves, in one order."""


def content(fields: list[bytes]) -> IID:
    return tuple(sorted(zip(fields[::2], fields[1::2], strict=True)))


@dataclass
class Producers:
    duration: int = 100
    maxsize: int = 100
    known: dict[bytes, dict[IID, ID]] = field(default_factory=dict)
    """Producer → its iids, the oldest first."""
    added: int = 0
    duplicates: int = 0

    def find(self, pid: bytes, iid: IID) -> ID | None:
        return self.known.get(pid, {}).get(iid)

    def add(self, pid: bytes, iid: IID, entry_id: ID) -> None:
        iids = self.known.setdefault(pid, {})
        iids[iid] = entry_id
        self.added += 1
        if len(iids) > self.maxsize:
            del iids[next(iter(iids))]

    def configure(self, duration: int | None, maxsize: int | None) -> None:
        wanted = (duration or self.duration, maxsize or self.maxsize)
        if wanted != (self.duration, self.maxsize):
            self.duration, self.maxsize = wanted
            self.known.clear()

    def sweep(self, now: int) -> None:
        """Once a second: from each producer's oldest on, what has run out is forgotten."""
        second = now // 1000 * 1000
        for pid, iids in list(self.known.items()):
            for iid, (ms, _) in list(iids.items()):
                if ms > second - self.duration * 1000:
                    break
                del iids[iid]
            if not iids:
                del self.known[pid]

    def iids(self) -> dict[bytes, list[ID]]:
        """What each producer's iids have become."""
        return {pid: list(iids.values()) for pid, iids in self.known.items()}
