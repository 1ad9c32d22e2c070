"""Random histories of a stream under a query, against a list that cannot forget.

Between two batches the stream is added to, trimmed, deleted from, deleted and made anew, or set by
XSETID. A query that accepts loss goes on; what it says is compared with what was lost.
"""

from __future__ import annotations

import logging
import random
import re
from typing import Any

import pytest
import redis

from headwater.model import StreamID
from headwater.spark.core.positions import Position
from headwater.spark.log_mode.offsets import positions_of
from tests.spark.queries import Query
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

STEPS = 14


class History:
    """One stream, one query, and a list of all entries that ever were."""

    def __init__(self, shop: Shop, seed: int, log: pytest.LogCaptureFixture) -> None:
        self.shop, self.log = shop, log
        self.chance = random.Random(seed)
        self.number = 0
        self.ms = 100
        self.live: dict[int, str] = {}
        self.read: set[int] = set()
        self.said: set[int] = set()
        """Gone unread, and the query has said so."""
        self.forged = False
        """Whether the stream was made anew, or its counters set, since the last batch."""
        self.deleted: set[str] = set()
        self.told: list[str] = []
        shop.client.flushall()
        self.add()
        self.options = self.chance.choice([{}, {"maxEntriesPerTrigger": "3"}])
        self.query = Query(shop, log=None, failOnDataLoss="false", **self.options)

    # --- what happens to the stream ---------------------------------------------------------------

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

    def make_anew(self) -> None:
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
            return  # the server refuses what contradicts the entries
        self.ms = max(self.ms, last.ms + 3)

    def _see(self) -> None:
        entries: Any = self.shop.client.xrange("s")
        left = {int(fields[b"n"]) for _id, fields in entries}
        self.live = {number: id_ for number, id_ in self.live.items() if number in left}

    # --- what the query does ----------------------------------------------------------------------

    def restart(self) -> None:
        if self.query.log:
            log = self.query.log
            self.query = Query(self.shop, log=log, failOnDataLoss="false", **self.options)

    def plan(self) -> None:
        """Plan and read a batch; what is said of it must be what happened."""
        place = positions_of(self.query.start)["s"]
        unread = self._unread_and_gone()
        fits = self._fits(place)
        self.log.clear()
        planned = self.query.plan()
        told = [record.getMessage() for record in self.log.records]
        if self.forged:
            assert told or fits, (place, "a stream made anew went unsaid")
        else:
            assert [int(n) for n in re.findall(r": (\d+) of \d+ entries", " ".join(told))] == (
                [len(unread)] if unread else []
            ), (place, told, unread)
            for text in told:
                certain = all(StreamID.parse(id_) <= place.id for id_ in self.deleted)
                assert ("were trimmed" in text) == certain
        self.said |= unread
        self.told += told
        if planned:
            self._read()
        if self.forged:  # of a stream that was changed, what lies before the place is not read
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
        """Whether the counters fit as many entries as are there."""
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
    """A history; ``honest``: the stream stays one and the same, only entries come and go."""
    history = History(shop, seed, log)
    happens = [history.add, history.add, history.trim, history.delete, history.restart]
    if not honest:
        happens += [history.make_anew, history.set_counters]
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
        pytest.param(range(8, 208), id="many", marks=pytest.mark.slice),
    ],
)


@HISTORIES
def test_exactly_what_went_unread_is_said(
    shop: Shop, seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.spark"):
        for seed in seeds:
            history = play(shop, seed, caplog, honest=True)

            everything = set(range(1, history.number + 1))
            assert history.read | history.said == everything, seed
            assert not history.read & history.said, seed
            assert bool(history.told) == bool(history.said), seed


@HISTORIES
def test_a_stream_made_anew_is_said_unless_its_counters_fit(
    shop: Shop, seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headwater.spark"):
        for seed in seeds:
            play(shop, seed, caplog, honest=False)
