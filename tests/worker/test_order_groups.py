"""The store ensures that an ordered group has one reader at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.groups.protocol.operation import Operation
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.ordered import (
    Claimed,
    NotTheReader,
    claim,
    keep_reader_key,
    last_delivered,
    pending_page,
    read_new,
    release_reader_key,
    take_reader_key,
)
from headwater.groups.settling.settling import How
from headwater.messages.keys import group_reader_key
from tests.worker.core import CLAIM_AFTER_MS, Core, stepped

TTL_MS = 60_000
KEY = group_reader_key("s", "g")


@pytest.fixture
def reader(core: Core) -> Core:
    """The consumer that holds the reader key."""
    assert core.do(take_reader_key(core.member, ttl_ms=TTL_MS))
    return core


def add(core: Core, count: int) -> list[bytes]:
    added: list[Any] = [core.client.xadd("s", {"n": number}) for number in range(count)]
    return added


def read(core: Core, limit: int = 100) -> list[bytes]:
    return [one.id for one in core.do(read_new(core.member, limit=limit))]


def claimed(core: Core, *ids: bytes) -> Claimed:
    answer: Claimed = core.do(claim(core.member, ids, gone=core.gone.extend))
    return answer


def between(operation: Operation[Any], meanwhile: Callable[[], object]) -> Operation[Any]:
    """The operation, with ``meanwhile`` called before its transaction."""
    return stepped(operation, lambda _step, commands: commands[0][0] == "MULTI" and meanwhile())


def test_one_consumer_at_a_time_holds_the_reader_key(reader: Core) -> None:
    other = reader.another("two")
    assert not other.do(take_reader_key(other.member, ttl_ms=TTL_MS))
    assert reader.do(take_reader_key(reader.member, ttl_ms=TTL_MS))
    assert reader.do(keep_reader_key(reader.member, ttl_ms=TTL_MS))
    assert not other.do(keep_reader_key(other.member, ttl_ms=TTL_MS))

    reader.do(release_reader_key(reader.member, ttl_ms=TTL_MS))
    assert other.do(take_reader_key(other.member, ttl_ms=TTL_MS))


def test_a_consumer_cannot_release_the_reader_key_of_another(reader: Core) -> None:
    other = reader.another("two")
    other.do(release_reader_key(other.member, ttl_ms=TTL_MS))
    assert reader.client.get(KEY) == b"one"
    assert 0 < reader.client.pttl(KEY) <= TTL_MS


def test_a_consumer_without_the_reader_key_can_neither_read_nor_claim(reader: Core) -> None:
    other = reader.another("two")
    (entry,) = add(reader, 1)
    with pytest.raises(NotTheReader):
        read(other)
    assert read(reader) == [entry]
    with pytest.raises(NotTheReader):
        claimed(other, entry)
    assert reader.pending(entry) == ("one", 1)


@pytest.mark.parametrize("how", ["expires", "is another's"])
def test_no_entry_is_read_if_the_reader_key_is_lost_just_before(reader: Core, how: str) -> None:
    add(reader, 1)

    def lose() -> None:
        if how == "expires" and reader.advance is not None:
            reader.advance(TTL_MS / 1000 + 1)
        elif how == "expires":
            reader.client.pexpire(KEY, 0)
        else:
            reader.client.set(KEY, "two")

    assert reader.do(between(read_new(reader.member, limit=10), lose)) == []
    assert reader.nothing_pending()


def test_no_entry_is_claimed_if_the_reader_key_is_lost_just_before(reader: Core) -> None:
    (entry,) = add(reader, 1)
    former = reader.another("former")
    former.read()
    reader.age(entry, CLAIM_AFTER_MS)
    answer = reader.do(
        between(
            claim(reader.member, [entry], gone=reader.gone.extend),
            lambda: reader.client.set(KEY, "two"),
        )
    )
    assert answer == ([], {}, [])
    assert reader.pending(entry) == ("former", 1)


def test_entries_that_a_former_reader_renews_are_not_claimed(reader: Core) -> None:
    (entry,) = add(reader, 1)
    reader.another("former").read()
    early = claimed(reader, entry)
    assert (early.found, early.settled) == ([], [])
    assert 0 < early.waiting[entry] <= 500
    assert reader.pending(entry) == ("former", 1)


def test_entries_that_a_former_reader_renews_just_before_are_not_claimed(reader: Core) -> None:
    (entry,) = add(reader, 1)
    former = reader.another("former")
    former.read()
    reader.age(entry, CLAIM_AFTER_MS)
    answer = reader.do(
        between(
            claim(reader.member, [entry], gone=reader.gone.extend),
            lambda: former.renew(Delivered(entry, [], 1, False, False)),
        )
    )
    assert (answer.found, answer.settled, [*answer.waiting]) == ([], [], [entry])
    assert reader.pending(entry) == ("former", 1)


def test_an_entry_that_its_reader_does_not_know_of_is_claimed_at_once(reader: Core) -> None:
    (entry,) = add(reader, 1)
    read(reader)  # a reply that was lost
    assert [one.id for one in claimed(reader, entry).found] == [entry]


def test_entries_that_a_former_reader_renews_no_more_are_claimed_by_id(reader: Core) -> None:
    first, second, third = add(reader, 3)
    reader.another("former").read()
    for entry in (first, second, third):
        reader.age(entry, CLAIM_AFTER_MS)
    answer = claimed(reader, first, third)
    assert [(one.id, one.delivery_count, one.from_silent) for one in answer.found] == [
        (first, 2, True),
        (third, 2, True),
    ]
    assert reader.pending(second) == ("former", 1)


def test_a_retry_is_not_claimed_before_it_is_due(reader: Core) -> None:
    (entry,) = add(reader, 1)
    read(reader)
    reader.settle(entry, How.FAIL, delay_ms=50_000)
    early = claimed(reader, entry)
    assert (early.found, early.settled) == ([], [])
    assert 0 < early.waiting[entry] <= 50_000


def test_a_released_entry_is_claimed_at_once_with_its_delivery_count(reader: Core) -> None:
    (entry,) = add(reader, 1)
    read(reader)
    reader.settle(entry, How.SILENT)
    (found,) = claimed(reader, entry).found
    assert (found.delivery_count, found.from_silent) == (1, False)


def test_a_claim_reports_settled_and_deleted_entries(reader: Core) -> None:
    settled, gone = add(reader, 2)
    reader.another("former").read()
    reader.age(gone, CLAIM_AFTER_MS)
    reader.client.xack("s", "g", settled)
    reader.client.xdel("s", gone)
    answer = claimed(reader, settled, gone)
    assert sorted(answer.settled) == [settled, gone]
    assert reader.gone == [gone]
    assert reader.nothing_pending()


def test_pending_entries_are_listed_in_pages(reader: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.groups.reading.ordered.PAGE", 2)
    ids = add(reader, 5)
    read(reader)
    reader.client.xdel("s", ids[4])

    start: bytes | None = b"-"
    found: list[bytes] = []
    while start is not None:
        page = pending_page(reader.member, {ids[0]}, start=start, gone=reader.gone.extend)
        entries, start = reader.do(page)
        found += [entry_id for entry_id, _fields in entries]
    assert found == ids[1:4]
    assert reader.gone == [ids[4]]
    assert reader.do(last_delivered(reader.member)) == ids[4]


def test_pending_entries_with_much_content_are_listed_a_few_megabytes_at_a_time(
    reader: Core,
) -> None:
    # Given pending entries of which some are large, and one that was deleted
    sizes = [2_000_000 if number % 10 == 0 else 10 for number in range(60)]
    ids: list[Any] = [reader.client.xadd("s", {"v": bytes(size)}) for size in sizes]
    read(reader)
    reader.client.xdel("s", ids[7])
    # When they are listed
    start: bytes | None = b"-"
    pages: list[list[tuple[bytes, list[bytes]]]] = []
    while start is not None:
        page = pending_page(reader.member, set(), start=start, gone=reader.gone.extend)
        found, start = reader.do(page)
        pages.append(found)
    # Then each is listed once, with its content, and no page has much more than four megabytes
    listed = {one: len(fields[1]) for page in pages for one, fields in page}
    assert listed == {one: size for one, size in zip(ids, sizes, strict=True) if one != ids[7]}
    assert [one for page in pages for one, _fields in page] == list(listed)
    assert all(sum(len(fields[1]) for _id, fields in page) < 8_000_000 for page in pages)
    assert reader.gone == [ids[7]]
