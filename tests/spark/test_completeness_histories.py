"""Random histories of a stream with a query, checked against a list of all its entries.

Between two batches, entries are added, trimmed and deleted, or the stream is recreated or set back by
XSETID. A query that accepts loss continues; its warnings are compared with the entries that were lost.
"""

from __future__ import annotations

import logging
import random
import re
from typing import Any

import pytest
import redis

from headwater.common.model import StreamID
from headwater.spark.core.positions import Position
from headwater.spark.log_mode.offsets import positions_of
from tests.samples import sampled
from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

STEPS = 14


class History:
    """One stream, one query, and a list of all entries that were ever added."""

    def __init__(self, shop: Shop, seed: int, log: pytest.LogCaptureFixture) -> None:
        self.shop, self.log = shop, log
        self.chance = random.Random(seed)
        self.number = 0
        self.ms = 100
        self.live: dict[int, str] = {}
        self.read: set[int] = set()
        self.said: set[int] = set()
        """Entries that were removed unread, and that the query has reported."""
        self.forged = False
        """Whether the stream was recreated, or its counters set, since the last batch."""
        self.deleted: set[str] = set()
        self.warnings: list[str] = []
        shop.client.flushall()
        self.add()
        self.options = self.chance.choice([{}, {"maxEntriesPerTrigger": "3"}])
        self.query = Query(shop, log=None, failOnDataLoss="false", **self.options)

    # --- changes of the stream --------------------------------------------------------------------

    def add(self) -> None:
        for _entry in range(self.chance.randint(1, 6)):
            self.number += 1
            self.ms += self.chance.choice([0, 1])
            added: Any = self.shop.client.xadd("s", {"n": self.number}, id=f"{self.ms}-*")
            self.live[self.number] = added.decode()

    def trim(self) -> None:
        keep = self.chance.randint(0, len(self.live))
        self.shop.client.xtrim("s", maxlen=keep, approximate=False)
        self._see()

    def delete(self) -> None:
        for number in self.chance.sample(sorted(self.live), min(len(self.live), 2)):
            self.shop.client.xdel("s", self.live[number])
            self.deleted.add(self.live[number])
        self._see()

    def recreate(self) -> None:
        self.forged = True
        self.shop.client.delete("s")
        self.live.clear()
        self.deleted.clear()
        self.ms = self.chance.choice([self.ms, self.ms - 4, 50])
        for _time in range(self.chance.randint(0, 3)):
            self.add()
        if self.chance.random() < 0.3:
            self.trim()

    def set_counters(self) -> None:
        if not self.shop.client.exists("s"):
            return
        self.forged = True
        info: Any = self.shop.client.execute_command("XINFO STREAM", "s")
        values = {_text(key): _text(value) for key, value in _pairs(info)}
        last = StreamID.parse(values["last-generated-id"])
        words: list[Any] = ["XSETID", "s", f"{last.ms + self.chance.choice([-3, 0, 2])}-{last.seq}"]
        added = int(values["entries-added"]) + self.chance.randint(-4, 4)
        words += ["ENTRIESADDED", added, "MAXDELETEDID", values["max-deleted-entry-id"]]
        try:
            self.shop.client.execute_command(*words)
        except redis.ResponseError:
            return  # the server refuses counters that contradict the entries
        self.ms = max(self.ms, last.ms + 3)

    def _see(self) -> None:
        entries: Any = self.shop.client.xrange("s")
        left = {int(fields[b"n"]) for _id, fields in entries}
        self.live = {number: id_ for number, id_ in self.live.items() if number in left}

    # --- steps of the query -----------------------------------------------------------------------

    def restart(self) -> None:
        if self.query.log:
            log = self.query.log
            self.query = Query(self.shop, log=log, failOnDataLoss="false", **self.options)

    def plan(self) -> None:
        """Plan and read a batch; check that its warnings match what happened."""
        place = positions_of(self.query.start)["s"]
        unread = self._unread_and_gone()
        fits = self._fits(place)
        self.log.clear()
        planned = self.query.plan()
        warnings = [record.getMessage() for record in self.log.records]
        if self.forged:
            assert warnings or fits, (place, "a recreated stream was not reported")
        else:
            assert [int(n) for n in re.findall(r": (\d+) of \d+ entries", " ".join(warnings))] == (
                [len(unread)] if unread else []
            ), (place, warnings, unread)
            for text in warnings:
                certain = all(StreamID.parse(id_) <= place.id for id_ in self.deleted)
                assert ("were trimmed" in text) == certain
        self.said |= unread
        self.warnings += warnings
        if planned:
            self._read()
        if self.forged:  # of a changed stream, entries before the position are not read
            end = positions_of(self.query.start)["s"].id
            before = {n for n, id_ in self.live.items() if StreamID.parse(id_) <= end}
            self.said |= before - self.read
        self.forged = False

    def _read(self) -> None:
        values = self.query.log[-1]["s"]
        start, end = StreamID.parse(values["from"]), StreamID.parse(values["to"])
        expected = [n for n, id_ in self.live.items() if start < StreamID.parse(id_) <= end]
        assert self.query.read() == expected
        self.read |= set(expected)

    def _unread_and_gone(self) -> set[int]:
        return set(range(1, self.number + 1)) - set(self.live) - self.read - self.said

    def _fits(self, place: Position) -> bool:
        """Return whether the counters fit the number of entries."""
        if not self.shop.client.exists("s"):
            return place.id == (0, 0) and place.added == 0
        info: Any = self.shop.client.execute_command("XINFO STREAM", "s")
        values = {_text(key): _text(value) for key, value in _pairs(info)}
        after = sum(StreamID.parse(id_) > place.id for id_ in self.live.values())
        return (
            int(values["entries-added"]) == place.added + after
            and StreamID.parse(values["last-generated-id"]) >= place.id
        )


def _pairs(reply: Any) -> Any:
    if isinstance(reply, dict):
        return reply.items()
    return zip(reply[::2], reply[1::2], strict=True)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def play(shop: Shop, seed: int, log: pytest.LogCaptureFixture, *, honest: bool) -> History:
    """Play a history; with ``honest`` entries are only added and removed."""
    history = History(shop, seed, log)
    happens = [history.add, history.add, history.trim, history.delete, history.restart]
    if not honest:
        happens += [history.recreate, history.set_counters]
    for _step in range(STEPS):
        history.chance.choice(happens)()
        if history.chance.random() < 0.6:
            history.plan()
    for _rest in range(3 * STEPS * 6):
        before = history.query.start
        history.plan()
        if history.query.start == before:
            break
    return history


HISTORIES = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="some"),
        pytest.param(range(8, 8 + sampled(60)), id="many", marks=pytest.mark.slice),
    ],
)


@HISTORIES
def test_exactly_the_unread_entries_are_reported(
    shop: Shop, seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.spark"):
        for seed in seeds:
            history = play(shop, seed, caplog, honest=True)

            everything = set(range(1, history.number + 1))
            assert history.read | history.said == everything, seed
            assert not history.read & history.said, seed
            assert bool(history.warnings) == bool(history.said), seed


@HISTORIES
def test_a_recreated_stream_is_reported_unless_its_counters_fit(
    shop: Shop, seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.spark"):
        for seed in seeds:
            play(shop, seed, caplog, honest=False)
