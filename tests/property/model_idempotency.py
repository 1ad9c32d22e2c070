"""The idempotent producers of a stream of the naive model: a dict in a dict."""

from __future__ import annotations

from dataclasses import dataclass, field

ID = tuple[int, int]
IID = bytes | tuple[tuple[bytes, bytes], ...]
"""An iid as given to IDMP; for IDMPAUTO the pairs of the entry, sorted."""


def content(fields: list[bytes]) -> IID:
    return tuple(sorted(zip(fields[::2], fields[1::2], strict=True)))


@dataclass
class Producers:
    duration: int = 100
    maxsize: int = 100
    known: dict[bytes, dict[IID, tuple[ID, int]]] = field(default_factory=dict)
    """Producer → its iids, oldest first: the entry of each, and the time from which it counts."""
    added: int = 0
    duplicates: int = 0

    def find(self, pid: bytes, iid: IID) -> ID | None:
        found = self.known.get(pid, {}).get(iid)
        return None if found is None else found[0]

    def add(self, pid: bytes, iid: IID, entry_id: ID, since: int) -> None:
        iids = self.known.setdefault(pid, {})
        iids[iid] = entry_id, since
        self.added += 1
        if len(iids) > self.maxsize:
            del iids[next(iter(iids))]

    def configure(self, duration: int | None, maxsize: int | None) -> None:
        wanted = (duration or self.duration, maxsize or self.maxsize)
        if wanted != (self.duration, self.maxsize):
            self.duration, self.maxsize = wanted
            self.known.clear()

    def sweep(self, now: int) -> None:
        """Drop the expired iids of each producer, from its oldest on. Runs once a second."""
        for pid, iids in list(self.known.items()):
            for iid, (_, since) in list(iids.items()):
                if not self.over(since, now):
                    break
                del iids[iid]
            if not iids:
                del self.known[pid]

    def over(self, since: int, now: int) -> bool:
        """Whether an iid that counts from ``since`` had expired at the last whole second."""
        return since <= now // 1000 * 1000 - self.duration * 1000

    def iids(self) -> dict[bytes, list[tuple[ID, int]]]:
        """Return, for each producer, the entries of its iids and the times from which they count."""
        return {pid: list(iids.values()) for pid, iids in self.known.items()}
