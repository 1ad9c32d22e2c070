"""The machine's rules for what is pending: settling, claiming, our own verbs, looking."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from headwater.testing.node import Word
from tests.property.machine import (
    StoreMachine,
    consumers,
    counts,
    groups,
    idles,
    keys,
    maybe,
    modes,
    pick,
    picks,
)
from tests.property.model import GREATEST, ID, LEAST, spell
from tests.property.model_groups import To

releases = st.sampled_from([b"SILENT", b"FAIL", b"FATAL"])
settlements = st.sampled_from([b"ACK", b"ACKDEL", b"SILENT", b"FAIL", b"FATAL"])


class PendingMachine(StoreMachine):
    """All rules."""

    def pending_ids(self, key: bytes, name: bytes, numbers: list[int]) -> list[ID]:
        """Ids that are pending in the group, where there are any."""
        stream = self.model.streams.get(key)
        group = None if stream is None else stream.groups.get(name)
        there = sorted(group.pending) if group is not None else []
        if not there:
            return self.ids(key, numbers)
        return [there[number % len(there)] for number in numbers]

    def owned_ids(self, key: bytes, name: bytes, who: bytes, numbers: list[int]) -> list[ID]:
        """Ids that the consumer owns; now and then somebody else's."""
        stream = self.model.streams.get(key)
        group = None if stream is None else stream.groups.get(name)
        owned = group.owned_by(who) if group is not None else []
        if not owned or numbers[0] % 7 == 0:
            return self.pending_ids(key, name, numbers)
        return [owned[number % len(owned)] for number in numbers]

    # --- settling -------------------------------------------------------------------------------

    @rule(key=keys, name=groups, numbers=picks)
    def xack(self, key: bytes, name: bytes, numbers: list[int]) -> None:
        ids = self.ids(key, numbers)
        self.put("XACK", key, name, *map(spell, ids), to=lambda: self.model.xack(key, name, ids))

    @rule(key=keys, name=groups, mode=modes, numbers=picks)
    def xackdel(self, key: bytes, name: bytes, mode: bytes, numbers: list[int]) -> None:
        ids = self.pending_ids(key, name, numbers)
        self.put(
            "XACKDEL", key, name, mode, "IDS", len(ids), *map(spell, ids),
            to=lambda: self.model.xackdel(key, name, mode, ids),
        )  # fmt: skip

    @rule(
        key=keys,
        name=groups,
        mode=releases,
        numbers=picks,
        any_id=maybe,
        retrycount=st.sampled_from([None, None, 0, 2**40]),
        force=maybe,
    )
    def xnack(
        self,
        key: bytes,
        name: bytes,
        mode: bytes,
        numbers: list[int],
        any_id: bool,
        retrycount: int | None,
        force: bool,
    ) -> None:
        ids = self.ids(key, numbers) if any_id else self.pending_ids(key, name, numbers)
        words: list[Word] = ["XNACK", key, name, mode]
        words += [] if retrycount is None else ["RETRYCOUNT", retrycount]
        words += ["IDS", len(ids), *map(spell, ids)]
        words += ["FORCE"] if force else []
        self.put(
            *words,
            to=lambda: self.model.xnack(key, name, mode, ids, retrycount=retrycount, force=force),
        )

    @rule(key=keys, name=groups, who=consumers, idle=idles, numbers=picks)
    def xrenew(self, key: bytes, name: bytes, who: bytes, idle: int, numbers: list[int]) -> None:
        ids = self.owned_ids(key, name, who, numbers)
        self.put(
            "XRENEW", key, name, who, "IDLE", idle, "IDS", len(ids), *map(spell, ids),
            to=lambda: self.model.xrenew(key, name, who, idle, ids),
        )  # fmt: skip

    @rule(
        key=keys,
        name=groups,
        who=consumers,
        mode=settlements,
        numbers=picks,
        delay=st.sampled_from([None, 0, 1, 10, 5000]),
        to=st.lists(st.tuples(keys, st.one_of(st.none(), st.none(), pick)), max_size=2),
    )
    def xsettle(
        self,
        key: bytes,
        name: bytes,
        who: bytes,
        mode: bytes,
        numbers: list[int],
        delay: int | None,
        to: list[tuple[bytes, int | None]],
    ) -> None:
        ids = self.owned_ids(key, name, who, numbers)
        delay = delay if mode in (b"SILENT", b"FAIL") else None
        words: list[Word] = ["XSETTLE", key, name, who, mode]
        words += [] if delay is None else ["DELAY", delay]
        words += ["IDS", len(ids), *map(spell, ids)]
        additions: list[To] = []
        for dest, number in to:
            wanted = None if number is None else (self.id(dest, number)[0] + 1, 1)
            word = b"*" if wanted is None else spell(wanted)
            words += ["TO", dest, word, "FIELDS", 1, b"f", b"v"]
            additions.append((dest, wanted, [b"f", b"v"]))
        self.put(
            *words,
            to=lambda: self.model.xsettle(key, name, who, mode, ids, delay=delay, to=additions),
        )

    # --- claiming -------------------------------------------------------------------------------

    @rule(
        key=keys,
        name=groups,
        who=consumers,
        min_idle=idles,
        numbers=picks,
        any_id=maybe,
        idle=st.sampled_from([None, 0, 1000, 7000]),
        retrycount=st.sampled_from([None, None, None, 5, 2**63 - 1]),
        force=maybe,
        justid=maybe,
    )
    def xclaim(
        self,
        key: bytes,
        name: bytes,
        who: bytes,
        min_idle: int,
        numbers: list[int],
        any_id: bool,
        idle: int | None,
        retrycount: int | None,
        force: bool,
        justid: bool,
    ) -> None:
        ids = self.ids(key, numbers) if any_id else self.pending_ids(key, name, numbers)
        words: list[Word] = ["XCLAIM", key, name, who, min_idle, *map(spell, ids)]
        words += [] if idle is None else ["IDLE", idle]
        words += [] if retrycount is None else ["RETRYCOUNT", retrycount]
        words += ["FORCE"] if force else []
        words += ["JUSTID"] if justid else []
        self.put(
            *words,
            to=lambda: self.model.xclaim(
                key, name, who, min_idle, ids,
                idle=idle or 0, retrycount=retrycount, force=force, justid=justid,
            ),
        )  # fmt: skip

    @rule(
        key=keys,
        name=groups,
        who=consumers,
        min_idle=st.sampled_from([0, 1, 1000, 5000, 2**63 - 1]),
        number=st.one_of(st.none(), pick),
        count=st.sampled_from([1, 1, 2, 100]),
        justid=maybe,
    )
    def xautoclaim(
        self,
        key: bytes,
        name: bytes,
        who: bytes,
        min_idle: int,
        number: int | None,
        count: int,
        justid: bool,
    ) -> None:
        start = LEAST if number is None else self.id(key, number)
        words: list[Word] = ["XAUTOCLAIM", key, name, who, min_idle, spell(start), "COUNT", count]
        words += ["JUSTID"] if justid else []
        self.put(
            *words,
            to=lambda: self.model.xautoclaim(
                key, name, who, min_idle, start, count=count, justid=justid
            ),
        )

    # --- looking --------------------------------------------------------------------------------

    @rule(key=keys, name=groups)
    def xpending(self, key: bytes, name: bytes) -> None:
        self.put("XPENDING", key, name, to=lambda: self.model.xpending(key, name))

    @rule(
        key=keys,
        name=groups,
        idle=st.sampled_from([None, 0, -1, 1000]),
        numbers=st.tuples(pick, pick),
        whole=maybe,
        count=counts,
        who=st.one_of(st.none(), consumers),
    )
    def xpending_rows(
        self,
        key: bytes,
        name: bytes,
        idle: int | None,
        numbers: tuple[int, int],
        whole: bool,
        count: int,
        who: bytes | None,
    ) -> None:
        start, end = self.id(key, numbers[0]), self.id(key, numbers[1])
        if whole:
            start, end = LEAST, GREATEST
        count = count or 50
        words: list[Word] = ["XPENDING", key, name]
        words += [] if idle is None else ["IDLE", idle]
        words += [spell(start), spell(end), count]
        words += [] if who is None else [who]
        self.put(
            *words,
            to=lambda: self.model.xpending_rows(key, name, idle or 0, start, end, count, who),
        )
