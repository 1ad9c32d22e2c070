"""An entry that is as large as the store permits can become a dead letter, and a replay delivers it again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import redis.asyncio

from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import Capabilities
from headwater.groups.protocol.operation import refused
from headwater.groups.reading.claiming import Delivered
from headwater.groups.settling import dead_letters, replay
from headwater.groups.settling.settling import How, settle
from headwater.messages.dead import DeadLetter
from headwater.testing.server import server_process
from headwater.worker import Stream
from tests.peers import Peer
from tests.worker.apps import Store, eventually, working
from tests.worker.core import Core
from tests.worker.outages import PEERS

pytestmark = pytest.mark.slow

MOST_PAIRS = 524_286
"""Maximum number of pairs of an XADD with 1,048,576 words: XADD, the key, ``*`` and the pairs."""

ABOUT = 8
"""Number of pairs that a record has in addition to those of its entry."""

DEAD = "{s}.dead"

MEBIBYTE = 1024 * 1024


def patient(client: redis.Redis | redis.asyncio.Redis) -> None:
    """Make the next connections of a client wait: such an entry takes a plain server on a busy machine seconds."""
    client.connection_pool.connection_kwargs["socket_timeout"] = 60


def wide(core: Core, pairs: int) -> Delivered:
    """Add an entry of so many pairs, and read it."""
    patient(core.client)
    core.client.connection_pool.disconnect()
    core.client.xadd("s", dict.fromkeys((b"%d" % number for number in range(pairs)), b""))
    (entry,) = core.read()
    return entry


def buried(core: Core, entry: Delivered, how: How = How.ACK) -> list[DeadLetter]:
    """Make an entry a dead letter. Returns the records."""
    letter = dead_letters.bury(
        core.member, DEAD, id=entry.id, fields=entry.fields, deliveries=1, error="no", at_ms=0
    )
    (outcome,) = core.do(settle(core.member, [letter._replace(how=how)]))
    assert outcome.done
    assert core.nothing_pending()
    found: list[DeadLetter] = core.do(dead_letters.page(DEAD))
    return found


@pytest.mark.parametrize("pairs", [MOST_PAIRS - 50, MOST_PAIRS - ABOUT])
def test_a_dead_letter_of_as_many_fields_as_an_entry_may_have_is_complete(
    core: Core, pairs: int
) -> None:
    (record,) = buried(core, wide(core, pairs))
    assert len(record.fields) == pairs
    assert record.error == "no"


@pytest.mark.parametrize("core", ["headwater"], indirect=True)  # others accept more words
@pytest.mark.parametrize("pairs", [MOST_PAIRS - ABOUT + 1, MOST_PAIRS])
def test_a_dead_letter_of_an_entry_with_more_fields_has_none_of_them_and_can_be_replayed(
    core: Core, pairs: int, caplog: pytest.LogCaptureFixture
) -> None:
    # Given an entry of a group that deletes what it has acknowledged, with too many fields for a record
    entry = wide(core, pairs)

    # When it becomes a dead letter
    (record,) = buried(core, entry, How.ACKDEL)

    # Then the record and the log say what is missing, and the entry is still in its stream
    assert record.fields == []
    assert record.entry_id.encode() == entry.id
    assert record.error.startswith(f"no (this record lacks the entry's fields, {pairs} in number")
    assert f"the dead letter of {record.entry_id} does not fit into {DEAD}" in caplog.text

    # And a replay delivers it again
    (done,) = core.do(replay.replay(DEAD, [record]))
    assert done.how is replay.ReplayResult.RETURNED
    assert core.pending(entry.id)[1] == 0
    assert core.client.xlen(DEAD) == 0


@pytest.mark.parametrize("core", ["headwater"], indirect=True)
def test_a_record_without_the_fields_of_a_deleted_entry_is_not_replayed(core: Core) -> None:
    entry = wide(core, MOST_PAIRS)
    (record,) = buried(core, entry)
    core.client.xdel("s", entry.id)

    (done,) = core.do(replay.replay(DEAD, [record]))

    assert done.how is replay.ReplayResult.REFUSED
    assert "is gone from 's', and the record does not have the entry's fields" in done.reason
    assert core.client.xlen(DEAD) == 1


def test_a_dead_letter_of_more_than_a_gibibyte_has_no_fields_of_its_entry() -> None:
    # Given the settlement of an entry that has almost as many bytes as an entry may have
    able = Capabilities(verbs=True, cluster=False, server="headwater")
    member = Member("s", "g", "one", 1_000, able)
    letter = dead_letters.bury(
        member, DEAD, id=b"5-1", fields=[b"f", b"v"], deliveries=1, error="no", at_ms=0
    )
    settling = settle(member, [letter])
    (command,) = next(settling)
    assert b"v" in command

    # When the store refuses its record
    (command,) = settling.send([refused("ERR Elements are too large to be stored")])

    # Then the entry is settled with a record without its fields
    assert b"v" not in command
    assert b"hw.error" in command
    with pytest.raises(StopIteration) as finished:
        settling.send([[[1], [b"6-1"]]])
    (outcome,) = finished.value.value
    assert outcome.done


async def test_a_worker_goes_on_after_an_entry_that_is_too_large_for_a_dead_letter(
    store: Store,
) -> None:
    # Given an entry of as many fields as possible among others
    one: dict[Any, Any] = {b"n": b"1"}
    patient(store.look)
    many: dict[Any, Any] = dict.fromkeys((b"%d" % number for number in range(MOST_PAIRS)), b"")
    for fields in (one, many, one):
        await store.look.xadd("s", fields)
    app = store.app()
    handled = []

    @app.consumer(
        Stream("s", dict[bytes, bytes], codec="bytes"),
        group="g",
        max_deliveries=1,
        delete=True,
        claim_after="5m",
    )
    async def take(fields: dict[bytes, bytes]) -> None:
        if len(fields) > 1:
            raise ValueError("too many")
        handled.append(fields)

    # When a worker fails on it
    async with working(app):
        await eventually(lambda: store.settled("g", "s"))

    # Then the others are handled, and it is a dead letter
    assert handled == [one, one]
    (letter,) = await store.dead("s")
    assert letter.error.startswith("ValueError: too many")
    assert letter.fields or await store.look.xlen("s") == 1


@pytest.mark.parametrize(
    "large",
    [{b"n": bytes(MEBIBYTE - 100)}, {b"%08d" % number: b"" for number in range(52_420)}],
    ids=["one long value", "many fields of 20 bytes on the wire"],
)
async def test_a_worker_goes_on_after_an_entry_whose_dead_letter_exceeds_the_input_of_a_client(
    large: dict[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # Given an entry almost as large as the input that the store accepts from a client, among others
    with server_process("--client-query-buffer-limit", "1mb") as server:
        async with redis.asyncio.Redis.from_url(server.url) as look:
            one: dict[Any, Any] = {b"n": b"1"}
            for added in (one, large, one):
                await look.xadd("s", added)
            await _handled_all_but_one(Store("headwater", server.url, look))
    assert "does not fit into {s}.dead" in caplog.text


@pytest.mark.parametrize("name", ["headwater", *PEERS])
async def test_a_worker_goes_on_after_an_entry_with_a_value_that_the_store_no_longer_accepts(
    name: str, peer: Callable[..., Peer]
) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(server_process()).url if name == "headwater" else peer(name).url
        async with redis.asyncio.Redis.from_url(url) as look:
            for added in (b"1", bytes(2 * MEBIBYTE), b"1"):
                await look.xadd("s", {"n": added})
            await look.config_set("proto-max-bulk-len", MEBIBYTE)
            await _handled_all_but_one(Store(name, url, look))


async def _handled_all_but_one(store: Store) -> None:
    """Let a worker handle the small entries of the stream and bury the large one."""
    handled = []
    app = store.app()

    @app.consumer(
        Stream("s", dict[bytes, bytes], codec="bytes"),
        group="g",
        max_deliveries=1,
        delete=True,
        claim_after="5m",
    )
    async def take(fields: dict[bytes, bytes]) -> None:
        if fields != {b"n": b"1"}:
            raise ValueError("too large")
        handled.append(fields)

    async with working(app):
        await eventually(lambda: store.settled("g", "s"))
    assert handled == [{b"n": b"1"}] * 2
    (letter,) = await store.dead("s")
    assert "ValueError: too large (this record lacks the entry's fields" in letter.error
    assert letter.fields == []
    entries: Any = await store.look.xrange("s")
    assert [one[0].decode() for one in entries] == [letter.entry_id]
