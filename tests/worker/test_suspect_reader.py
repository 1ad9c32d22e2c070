"""The reader of the quarantine process, one step at a time."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.poison import Record
from headwater.groups.reading.suspect_reader import SuspectReader
from headwater.groups.settling.settling import How
from headwater.messages.keys import delays_key, poison_key
from tests.worker.core import CLAIM_AFTER_MS, Core
from tests.worker.test_groups import add

POISON = poison_key("s", "g")


@pytest.fixture
def quarantine(core: Core) -> Core:
    """The quarantine process's consumer of the group."""
    found = core.another("quarantine")
    found.reader = SuspectReader(found.member, gone=found.gone.extend)  # type: ignore[assignment]
    return found


def entry_with(core: Core, record: Record) -> Delivered:
    """Read an entry and give it this record."""
    add(core, b"a", b"b")
    first, _second = core.read()
    core.client.hset(POISON, first.id.decode(), record.encode())
    return first


def test_the_quarantine_reads_only_suspected_messages(core: Core, quarantine: Core) -> None:
    entry_with(core, Record(excused=1))
    add(core, b"new")

    assert quarantine.read() == []


def test_the_quarantine_gets_a_released_message_at_once(core: Core, quarantine: Core) -> None:
    # Given a suspected message that another reader hands back
    suspect = entry_with(core, Record(excused=2, left=1))
    core.settle(suspect, How.SILENT, delay_ms=1_000)

    # When the quarantine process reads, then it gets the message, with the same delivery count
    (found,) = quarantine.read()
    assert (found.id, found.fields, found.delivery_count) == (suspect.id, [b"v", b"a"], 1)
    assert not found.from_silent
    assert core.pending(suspect.id) == ("quarantine", 1)
    assert quarantine.settle(found).done


def test_the_retry_of_a_suspected_message_is_never_early(core: Core, quarantine: Core) -> None:
    suspect = entry_with(core, Record(excused=2, alone_at=1))
    core.settle(suspect, How.FAIL, delay_ms=30_000)

    assert quarantine.read() == []

    if core.advance is None:
        core.client.zadd(delays_key("s", "g"), {suspect.id: 1})
    else:
        core.advance(31)
    (found,) = quarantine.read()
    assert (found.delivery_count, found.from_silent) == (2, False)


def test_a_suspected_message_is_not_claimed_from_a_live_owner(core: Core, quarantine: Core) -> None:
    suspect = entry_with(core, Record(excused=2, left=1))

    assert quarantine.read() == []

    core.age(suspect, CLAIM_AFTER_MS + 1)
    (found,) = quarantine.read()
    assert (found.delivery_count, found.from_silent) == (2, True)


def test_the_quarantine_deletes_the_records_of_settled_messages(
    core: Core, quarantine: Core
) -> None:
    suspect = entry_with(core, Record(excused=2))
    core.settle(suspect)

    assert quarantine.read() == []

    fields: Any = core.client.hgetall(POISON)
    assert fields == {}
