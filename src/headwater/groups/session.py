"""A member's session in its group: what it must remember to survive a group that vanishes.

Workers and Spark's group mode are two drivers of it, with and without an event loop.

Rule 1. A vanished group is created again from what is known here (`member.rejoin`), never silently
        from the beginning, and the operation that found it gone is carried out again.
Rule 2. An entry that is not this member's any more may be so because another member created the group
        again. Then it is registered again, and settled.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from headwater.groups.member import Member, Remade, join, look_again, rejoin
from headwater.groups.operation import GroupVanished, Operation
from headwater.groups.settling import FINAL, Settlement, SettleOutcome, settle
from headwater.model import MIN_ID, StreamID

log = logging.getLogger("headwater.groups")

T = TypeVar("T")

ROUNDS = 3
"""Rounds of notes for which a member remembers what it handed back: a note is as old as two at most."""

Counted: TypeAlias = Sequence[tuple[bytes, int]]
"""Ids with their delivery counts."""


class GroupSession:
    """One member's session. ``unsettled`` says what the member has taken and not settled."""

    def __init__(self, member: Member, *, unsettled: Callable[[], Counted]) -> None:
        self.member = member
        """Changes when a connection leads to another server."""
        self.mark: bytes | None = None
        """What the group's settings said when it was last joined, or created again."""
        self.seen: bytes | None = None
        """The greatest id that was ever delivered as new."""
        self._unsettled = unsettled
        self._handed_back: deque[set[bytes]] = deque([set()], maxlen=ROUNDS)
        """What this member handed back, by the round of notes: the last note may be older than that."""

    def join(self, *, position: StreamID | str = MIN_ID) -> Operation[None]:
        """Join the group; see `member.join`."""
        self.mark = yield from join(self.member, position=position)

    def surviving(self, make: Callable[[Member], Operation[T]]) -> Operation[T]:
        """The operation, which must be one that may run twice. If the group is gone, it is created
        again and the operation is repeated once."""
        try:
            return (yield from make(self.member))
        except GroupVanished:
            yield from self.create_again()
            return (yield from make(self.member))

    def create_again(self, *, replaced: bool = False) -> Operation[None]:
        """Create the vanished group again and register what is not settled. If another client has
        ``replaced`` it, register that in the new one."""
        remade = yield from rejoin(
            self.member,
            unsettled=self._unsettled(),
            handed_back=set().union(*self._handed_back),
            seen=self.seen,
            mark=secrets.token_hex(8),
            replaced=replaced,
        )
        self._handed_back.append(set())
        self.mark = remade.mark
        _log_created(self.member, remade)

    def registered_again(self, unsettled: Counted) -> Operation[set[bytes]]:
        """If another member created the group again: which of these are registered as ours; else
        none."""
        self.mark, kept = yield from look_again(self.member, unsettled=unsettled, mark=self.mark)
        return kept

    def settle(self, settlements: Sequence[Settlement]) -> Operation[list[SettleOutcome]]:
        """Settle, in order. What is not ours because another member created the group again is
        registered and settled then. Raises `GroupVanished`."""
        outcomes = yield from settle(self.member, settlements)
        for one in settlements:
            if one.how not in FINAL:
                self._handed_back[-1].update(one.ids)
        missed = [entry_id for outcome in outcomes for entry_id in outcome.missed]
        if not missed:
            return outcomes
        counts = dict(self._unsettled())
        kept = yield from self.registered_again([(one, counts.get(one, 1)) for one in missed])
        again: dict[int, Settlement] = {}
        for n, outcome in enumerate(outcomes):
            left = _registered(settlements[n], outcome.missed, kept)
            if left is not None:
                again[n] = left
        if again:
            retried = yield from settle(self.member, [*again.values()])
            for n, outcome in zip(again, retried, strict=True):
                outcomes[n] = _with(outcomes[n], again[n], outcome)
        return outcomes

    def backed_up(self) -> None:
        """A round of notes has passed: what was handed back `ROUNDS` before is in the note."""
        self._handed_back.append(set())


def _registered(
    settlement: Settlement, missed: Sequence[bytes], kept: set[bytes]
) -> Settlement | None:
    """What of a settlement can be carried out now that ``kept`` are registered."""
    if settlement.additions:
        return settlement if missed and kept.issuperset(missed) else None
    ids = [one for one in missed if one in kept]
    return settlement._replace(id=ids[0], others=ids[1:]) if ids else None


def _with(first: SettleOutcome, again: Settlement, second: SettleOutcome) -> SettleOutcome:
    """The outcome of a settlement, a part of which was repeated."""
    repeated = set(again.ids)
    missed = [one for one in first.missed if one not in repeated] + [*second.missed]
    return second._replace(done=second.done and not missed, missed=missed)


def _log_created(member: Member, remade: Remade) -> None:
    if not remade.made:
        log.warning(
            "group %s of stream %s was gone and another worker created it again; %d unsettled "
            "entries are registered again",
            member.group,
            member.stream,
            len(remade.kept),
        )
        return
    what = "was gone and is created again"
    if remade.replaced:
        what = "was destroyed and created again by another client, and goes on"
    log.warning(
        "group %s of stream %s %s behind %s; %d unsettled entries of this "
        "worker are registered again, and %d from a note that is %.1f s old; what was settled since "
        "may be handled again",
        member.group,
        member.stream,
        what,
        remade.position,
        len(remade.kept),
        remade.restored,
        remade.age_ms / 1000,
    )
