"""A member's session in its group: the state from which the member creates a vanished group again.

Workers use a session with an event loop, and Spark's group mode without one.

Rule 1. A vanished group is created again from this state (`member.rejoin`), never silently from the
        beginning. The operation that found the group gone is repeated.
Rule 2. A member may have lost an entry because another member created the group again. Then the member
        takes ownership of the entry again, and settles it.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar

from headwater.common.model import MIN_ID, StreamID
from headwater.groups.membership.member import Member, Remade, join, look_again, rejoin
from headwater.groups.protocol.operation import GroupVanished, Operation
from headwater.groups.settling.settling import FINAL, Settlement, SettleOutcome, settle

log = logging.getLogger("headwater.groups")

T = TypeVar("T")

ROUNDS = 3
"""Number of rounds of backups for which a member remembers the entries that it has handed back. A backup is at
most two rounds old."""

Counted: TypeAlias = Sequence[tuple[bytes, int]]
"""Ids with their delivery counts."""


class GroupSession:
    """One member's session. ``unsettled`` returns the entries that the member owns."""

    def __init__(self, member: Member, *, unsettled: Callable[[], Counted]) -> None:
        self.member = member
        """The member. It changes when a connection leads to another server."""
        self.mark: bytes | None = None
        """The group's mark when it was last joined or created again."""
        self.seen: bytes | None = None
        """The greatest id that was ever delivered as a new entry."""
        self._unsettled = unsettled
        self._handed_back: deque[set[bytes]] = deque([set()], maxlen=ROUNDS)
        """Ids that this member handed back, by round of backups. The last backup may still have them."""

    def join(self, *, position: StreamID | str = MIN_ID) -> Operation[None]:
        """Join the group; see `member.join`."""
        self.mark = yield from join(self.member, position=position)

    def surviving(self, make: Callable[[Member], Operation[T]]) -> Operation[T]:
        """Run the operation that ``make`` returns. If the group is gone, create it again and repeat the
        operation once. It must be harmless to run the operation twice."""
        try:
            return (yield from make(self.member))
        except GroupVanished:
            yield from self.create_again()
            return (yield from make(self.member))

    def create_again(self, *, replaced: bool = False) -> Operation[None]:
        """Create the vanished group again and restore its pending entries. If another client has
        ``replaced`` the group, restore them in the new one."""
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
        """Make this member own these entries again if another member created the group again. Return the ids
        that it owns again; empty if the group was not created again."""
        self.mark, kept = yield from look_again(self.member, unsettled=unsettled, mark=self.mark)
        return kept

    def settle(
        self, settlements: Sequence[Settlement], unknown: AbstractSet[bytes] = frozenset()
    ) -> Operation[list[SettleOutcome]]:
        """Settle in order; see `settling.settle`. If this member lost entries because another member created
        the group again, it takes them back and settles them. Raises `GroupVanished`."""
        outcomes = yield from settle(self.member, settlements, unknown)
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
        """Record that a round of backups has passed. Forget ids that were handed back `ROUNDS` rounds ago, because
        the backup was written since."""
        self._handed_back.append(set())


def _registered(
    settlement: Settlement, missed: Sequence[bytes], kept: set[bytes]
) -> Settlement | None:
    """Return the part of a settlement that can be carried out now that the member owns ``kept`` again."""
    if settlement.additions:
        return settlement if missed and kept.issuperset(missed) else None
    ids = [one for one in missed if one in kept]
    return settlement._replace(id=ids[0], others=ids[1:]) if ids else None


def _with(first: SettleOutcome, again: Settlement, second: SettleOutcome) -> SettleOutcome:
    """Return the outcome of a settlement after a part of it was repeated."""
    repeated = set(again.ids)
    missed = [one for one in first.missed if one not in repeated] + [*second.missed]
    return second._replace(done=second.done and not missed, missed=missed)


def _log_created(member: Member, remade: Remade) -> None:
    if not remade.made:
        log.warning(
            "group %s of stream %s was gone and another worker created it again; %d unsettled "
            "entries are pending again",
            member.group,
            member.stream,
            len(remade.kept),
        )
        return
    what = "was gone and has been created again, and continues"
    if remade.replaced:
        what = "was destroyed and created again by another client, and continues"
    log.warning(
        "group %s of stream %s %s after %s; %d unsettled entries of this "
        "worker are pending again, and %d from a backup that is %.1f s old; entries settled since "
        "then may be handled again",
        member.group,
        member.stream,
        what,
        remade.position,
        len(remade.kept),
        remade.restored,
        remade.age_ms / 1000,
    )
