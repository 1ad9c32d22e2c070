"""The demo counts what is in the store: with the producer, in `evidence` and in the sampler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from headwater.demo import data, evidence
from headwater.demo.enrich import Enriched, enrich
from headwater.demo.names import ENRICHED, GROUP, STREAM
from headwater.demo.producer import publish
from headwater.demo.sampling import Sampler
from headwater.messages import codec_for
from headwater.messages.dead import dead_letter_fields
from headwater.messages.keys import dead_letter_stream
from tests.peers import Peer

pytestmark = pytest.mark.slow

FLIGHTS = 300


@pytest.fixture(scope="module")
def flights() -> list[data.Flight]:
    return data.flights(limit=FLIGHTS)


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(
    request: pytest.FixtureRequest, shared_peer: Callable[[str], Peer]
) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(shared_peer("redis-8.2").url, protocol=request.param) as client:
        yield client


@pytest.mark.peer
def test_the_producer_publishes_every_flight_and_knows_which_are_corrupted(
    client: redis.Redis, flights: list[data.Flight]
) -> None:
    advances: list[int] = []
    published = publish(client, flights, seed=7, advance=advances.append)
    assert client.xlen(STREAM) == published.flights == sum(advances) == FLIGHTS
    assert len(published.valid) + published.corrupted.total() == FLIGHTS
    assert sorted(published.corrupted.values()) == [1, 1, 1, 1]


@pytest.mark.peer
def test_enriched_flights_and_dead_letters_are_read_back_completely(
    client: redis.Redis, flights: list[data.Flight], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given enriched flights over several pages, and one dead letter
    monkeypatch.setattr(evidence, "PAGE", 70)
    airlines, codec = data.airlines(), codec_for(Enriched)
    for number, flight in enumerate(flights):
        made = enrich(flight, airlines, source_id=f"{number}-0", worker="w-1", deliveries=2)
        client.xadd(ENRICHED, dict(codec.encode(made)))
    fields = dead_letter_fields(
        [b"data", b"{"],
        stream=STREAM,
        group=GROUP,
        entry_id="5-1",
        consumer="w-2",
        deliveries=1,
        error="DecodeError: field 'data' = b'{' is not a JSON document",
        trace="",
        at_ms=0,
    )
    client.xadd(dead_letter_stream(STREAM), dict(fields))

    # When they are counted
    keys, settled = evidence.read_enriched(client)
    (dead,) = evidence.read_dead(client)

    # Then nothing is missing
    assert keys == dict.fromkeys(map(data.key, flights), 1)
    assert settled["7-0"] == evidence.SettledEntry("w-1", 2)
    assert (dead.entry_id, dead.consumer, dead.fields) == ("5-1", "w-2", [(b"data", b"{")])


@pytest.mark.peer
def test_a_consumer_owns_what_it_has_read_and_not_settled(client: redis.Redis) -> None:
    # Given two consumers that have read entries, and one entry that was acknowledged
    ids: list[Any] = [client.xadd(STREAM, {"n": number}) for number in range(5)]
    client.xgroup_create(STREAM, GROUP, "0")
    client.xreadgroup(GROUP, "a", {STREAM: ">"}, count=3)
    client.xreadgroup(GROUP, "b", {STREAM: ">"}, count=1)
    client.xack(STREAM, GROUP, ids[0])

    # Then each owns the others that it has read, and one entry is unread
    owned = [str(entry_id, "ascii") for entry_id in ids[1:3]]
    assert evidence.owned_entries(client, "a") == evidence.OwnedEntries(
        "a", dict.fromkeys(owned, 1)
    )
    assert evidence.pending(client) == dict.fromkeys(owned, ("a", 1)) | {
        str(ids[3], "ascii"): ("b", 1)
    }
    assert evidence.group_counts(client) == (3, 1)


@pytest.mark.peer
def test_the_sampler_counts_entries_and_records_events(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.demo.sampling.INTERVAL_SECONDS", 0.001)
    seen = threading.Event()
    client.xadd(STREAM, {"n": 1})
    with Sampler(client, seen=lambda sample: seen.set() if sample.published else None) as sampler:
        assert seen.wait(10)
        sampler.mark("looked")
    assert sampler.samples[-1].published == 1
    assert [event.what for event in sampler.events] == ["looked"]
    assert sampler.problem is None
