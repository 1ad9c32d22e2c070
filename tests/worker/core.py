"""A consumer of a group over a synchronous connection, for tests that take one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import redis

from headwater.groups.membership.member import Member, join
from headwater.groups.protocol import capabilities
from headwater.groups.protocol.operation import Command, Operation, run, single
from headwater.groups.reading import claiming
from headwater.groups.reading.claiming import Delivered, MemberReader
from headwater.groups.settling import settling
from headwater.groups.settling.settling import Addition, How, Settlement, SettleOutcome
from headwater.messages.keys import group_settings_key

CLAIM_AFTER_MS = 60_000


@dataclass
class Core:
    """One consumer of a group. Tests inspect the store through ``client``."""

    client: redis.Redis
    member: Member
    reader: MemberReader
    gone: list[bytes]
    """Ids that were reported as deleted from the stream."""
    now: float = 1_000.0
    advance: Callable[[float], None] | None = None
    """Advances the store's clock by some seconds, if the test controls that clock."""

    @classmethod
    def joined(
        cls,
        url: str,
        consumer: str = "one",
        *,
        claim_after_ms: int = CLAIM_AFTER_MS,
    ) -> Core:
        """A consumer that has joined group ``g`` of stream ``s``."""
        client = redis.Redis.from_url(url)
        able = run(client, capabilities.probe())
        member = Member("s", "g", consumer, claim_after_ms, able)
        run(client, join(member))
        return cls.of(client, member)

    @classmethod
    def of(cls, client: redis.Redis, member: Member, **more: Any) -> Core:
        """A consumer for ``member``, which has joined its group already."""
        gone: list[bytes] = []
        return cls(client, member, MemberReader(member, gone=gone.extend), gone, **more)

    def close(self) -> None:
        self.client.close()

    def another(self, consumer: str) -> Core:
        """Another consumer of the same group."""
        member = replace(self.member, consumer=consumer)
        return Core.of(self.client, member, now=self.now, advance=self.advance)

    def claiming_after(self, claim_after_ms: int) -> Core:
        """The same consumer with another ``claim_after``."""
        member = replace(self.member, claim_after_ms=claim_after_ms)
        return Core.of(self.client, member, now=self.now, advance=self.advance)

    def do(self, operation: Operation[Any]) -> Any:
        """Carry out an operation. Reads do not block, so the test decides what happens next."""
        return run(self.client, _unblocked(operation))

    def read(self, limit: int = 100) -> list[Delivered]:
        """Read once, one second later by the consumer's clock."""
        self.now += 1
        found: list[Delivered] = self.do(self.reader.read(limit=limit, now=self.now))
        return found

    def settle(
        self,
        entry: Delivered | bytes,
        how: How = How.ACK,
        *,
        delay_ms: int = 0,
        to: Sequence[Addition] = (),
    ) -> SettleOutcome:
        entry_id = entry if isinstance(entry, bytes) else entry.id
        settlement = Settlement(entry_id, how, delay_ms, to)
        outcome: SettleOutcome = self.do(settling.settle(self.member, [settlement]))[0]
        return outcome

    def renew(self, *entries: Delivered) -> list[bool]:
        flags: list[bool] = self.do(settling.renew(self.member, [e.id for e in entries]))
        return flags

    def recover(self, known: Sequence[bytes] = ()) -> tuple[list[Delivered], list[bytes]]:
        found: tuple[list[Delivered], list[bytes]] = self.do(claiming.recover(self.member, known))
        return found

    def age(self, entry: Delivered | bytes, idle_ms: int) -> None:
        """Set an entry's idle time, as if its owner had not renewed it. The owner itself was seen recently,
        so only a sweep of the pending entries list finds the entry. The next read makes a sweep."""
        entry_id = entry if isinstance(entry, bytes) else entry.id
        row = self.pending(entry_id)
        run(self.client, single("XCLAIM", "s", "g", row[0], 0, entry_id, "IDLE", idle_ms, "JUSTID"))
        self.client.hdel(group_settings_key("s", "g"), "swept_ms")

    def pending(self, entry_id: bytes) -> tuple[str, int]:
        """Owner and delivery count of a pending entry."""
        rows: Any = self.client.xpending_range("s", "g", entry_id, entry_id, 1)
        assert rows, f"{entry_id!r} is not pending"
        return rows[0]["consumer"].decode(), rows[0]["times_delivered"]

    def nothing_pending(self) -> bool:
        summary: Any = self.client.xpending("s", "g")
        return bool(summary["pending"] == 0)


def stepped(
    operation: Operation[Any], before: Callable[[int, Sequence[Command]], object]
) -> Operation[Any]:
    """The same operation. ``before`` is called before each step with its number, from 0 on, and its commands."""
    step, commands = 0, next(operation)
    while True:
        before(step, commands)
        step += 1
        replies = yield commands
        try:
            commands = operation.send(replies)
        except StopIteration as finished:
            return finished.value


def _unblocked(operation: Operation[Any]) -> Operation[Any]:
    """The same operation without BLOCK in its reads."""
    commands = next(operation)
    while True:
        changed: list[Command] = []
        for command in commands:
            words = list(command)
            if words[0] in ("XREAD", "XREADGROUP") and "BLOCK" in words:
                at = words.index("BLOCK")
                del words[at : at + 2]
            changed.append(words)
        replies = yield changed
        try:
            commands = operation.send(replies)
        except StopIteration as finished:
            return finished.value
