"""Streams of every type that servers write, in payloads made from the description."""

from __future__ import annotations

import pytest

from headwater.rdb.errors import BadPayload
from headwater.rdb.image import (
    NEVER,
    UNKNOWN,
    ConsumerImage,
    GroupImage,
    IdempotencyImage,
    ProducerImage,
    StreamImage,
)
from tests.unit.rdb import old_payloads as old
from tests.unit.rdb.plain_images import (
    Entry,
    Owned,
    entries_of,
    ids,
    node_of,
    owned_by,
    pending_of,
)
from tests.unit.rdb.plain_images import read_payload as load
from tests.unit.rdb.plain_images import write_payload as dump

T = 1_700_000_000_000

TEA = [b"item", b"tea", b"price", b"18"]
INK = [b"item", b"ink", b"price", b"-7"]
OTHER = [b"note", b"x" * 100]
NODES = [
    old.node([((5, 1), TEA, True), ((5, 2), INK, False), ((6, 0), OTHER, True)]),
    old.node([((9, 9), TEA, True)], lzf=True),
]
IMAGES = [
    node_of(
        (5, 1),
        [
            Entry((5, 1), tuple(TEA)),
            Entry((5, 2), tuple(INK), live=False),
            Entry((6, 0), tuple(OTHER)),
        ],
    ),
    node_of((9, 9), [Entry((9, 9), tuple(TEA))]),
]


def of_kind(kind: int) -> bytes:
    """Return the same stream, as far as type ``kind`` can represent it."""
    pending = [((5, 1), T, 3), ((6, 0), 0 if kind == 27 else T + 1, 2**63 - 1)]
    consumers = [(b"al", T + 5, T + 4, [(5, 1)]), (b"bo", T + 6, -1, [])]
    released = [(6, 0)]
    if kind < 27:
        consumers[1] = (b"bo", T + 6, T + 3, [(6, 0)])
        released = []
    groups = [
        old.group(kind, b"g", (6, 0), 3, pending, consumers, released),
        old.group(kind, b"h", (7, 0), -1, [], []),
    ]
    known = b""
    if kind >= 26:
        known = old.idempotency(60, 10, [(b"shop", [(b"a", (5, 1)), (b"b", (5, 2))])], 7, 2)
    return old.sealed(
        old.stream(
            kind,
            NODES,
            3,
            (9, 9),
            first_id=(5, 1),
            max_deleted_id=(5, 2),
            added=4,
            groups=groups,
            known=known,
        )
    )


@pytest.mark.parametrize("kind", [15, 19, 21, 26, 27])
def test_a_stream_is_read_as_far_as_its_type_represents_it(kind: int) -> None:
    # Given a stream of two nodes, a deleted entry, two groups and a pending list
    image = load(of_kind(kind))

    # Then what the type represents is there, and the rest has Redis's defaults
    assert isinstance(image, StreamImage)
    assert image.nodes == IMAGES
    assert image.last_id == (9, 9)
    assert (image.entries_added, image.max_deleted_id) == (
        (4, (5, 2)) if kind > 15 else (3, (0, 0))
    )
    released = kind == 27
    seen = [T + 5, T + 6]
    active = [T + 4, NEVER if released else T + 3] if kind >= 21 else seen
    assert image.groups == [
        GroupImage(
            b"g",
            (6, 0),
            3 if kind > 15 else None,
            pending_of(
                [
                    Owned((5, 1), T, 3, 1),
                    Owned((6, 0), 0 if released else T + 1, 2**63 - 1, 0 if released else 2),
                ]
            ),
            [
                ConsumerImage(b"al", seen[0], active[0]),
                ConsumerImage(b"bo", seen[1], active[1]),
            ],
            ids((6, 0)) if released else ids(),
        ),
        GroupImage(b"h", (7, 0), UNKNOWN if kind > 15 else None),
    ]
    known = IdempotencyImage(
        60, 10, [ProducerImage(b"shop", [(b"a", (5, 1)), (b"b", (5, 2))])], 7, 2
    )
    assert image.idempotency == (known if kind >= 26 else None)


@pytest.mark.parametrize(("kind", "form"), [(19, "7.0"), (21, "8.2"), (27, "8.8")])
def test_a_stream_that_was_written_is_read(kind: int, form: str) -> None:
    # Given a stream that the form can represent
    image = load(of_kind(kind))

    # When it is written in that form and read
    payload = dump(image, form)

    # Then it is the same
    assert payload[0] == kind
    assert load(payload) == image


def test_older_forms_give_entries_without_owner_to_the_nameless_consumer() -> None:
    # Given a released entry, a delayed one, and a consumer whose name is empty
    image = load(of_kind(27))
    assert isinstance(image, StreamImage)
    (group, _) = image.groups
    owned = [Owned((5, 1), T, 3, 1), Owned((6, 0), 0, 2**63 - 1, 0), Owned((9, 9), T + 99, 1, 0)]
    group.pending, group.released = pending_of(owned), ids((6, 0), (9, 9))

    for form in ("7.0", "8.2"):
        # When the stream is written in a form without entries that have no owner
        found = load(dump(image, form))

        # Then the consumer with the empty name owns both, with the due time of the delayed one
        assert isinstance(found, StreamImage)
        assert found.groups[0].pending.words == group.pending.words
        assert found.groups[0].consumers[0].name == b""
        assert owned_by(found.groups[0], b"") == [(6, 0), (9, 9)]
        assert [consumer.name for consumer in found.groups[0].consumers] == [b"", b"al", b"bo"]

    # And a consumer with the empty name that exists keeps its own entries
    group.consumers.append(ConsumerImage(b"", T, T))
    group.pending = pending_of([*owned[:2], Owned((8, 8), T, 1, 3), owned[2]])
    found = load(dump(image, "8.2"))
    assert isinstance(found, StreamImage)
    assert found.groups[0].consumers[0] == ConsumerImage(b"", T, T)
    assert owned_by(found.groups[0], b"") == [(6, 0), (8, 8), (9, 9)]


def entries(*rows: tuple[int, int, bool]) -> bytes:
    return old.node([((ms, seq), TEA, live) for ms, seq, live in rows])


def ids_of(body: bytes) -> list[tuple[int, int, bool]]:
    image = load(old.sealed(body))
    assert isinstance(image, StreamImage)
    return [(*entry.id, entry.live) for node in image.nodes for entry in entries_of(node)]


def test_deleted_entries_whose_ids_do_not_rise_are_left_out() -> None:
    # Given a deleted last entry and an XSETID below it (Redis 7.0 permits it)
    one = entries((5, 1, True), (7, 0, False), (6, 0, True), (8, 0, False))
    two = entries((6, 5, True), (9, 0, False))

    # Then the deleted ones with too large ids are left out, and all live ones are there
    assert ids_of(old.stream(19, [one, two], 3, (6, 9), added=5)) == [
        (5, 1, True),
        (6, 0, True),
        (6, 5, True),
    ]


def test_a_node_without_live_entries_is_left_out() -> None:
    nodes = [entries((5, 1, False)), entries((6, 1, True))]
    assert ids_of(old.stream(19, nodes, 1, (6, 1), added=2)) == [(6, 1, True)]


def test_a_greatest_deleted_id_past_the_last_id_is_the_last_id() -> None:
    # Given a stream as XSETID of Redis 7.0 can leave it
    body = old.stream(19, [entries((5, 1, True))], 1, (6, 0), max_deleted_id=(7, 0), added=3)

    # Then the stream is consistent
    image = load(old.sealed(body))
    assert isinstance(image, StreamImage)
    assert image.max_deleted_id == image.last_id == (6, 0)


def plain(**changes: object) -> bytes:
    """Encode a small valid stream with ``changes``."""
    values: dict[str, object] = {
        "kind": 27,
        "nodes": [entries((5, 1, True), (5, 2, True))],
        "size": 2,
        "last_id": (5, 2),
        "added": 2,
        "known": old.idempotency(100, 100),
    }
    return old.stream(**{**values, **changes})  # type: ignore[arg-type]


def grouped(
    pending: list[old.Pending],
    consumers: list[old.Consumer],
    released: list[old.ID] | None = None,
    name: bytes = b"g",
) -> bytes:
    return old.group(27, name, (5, 2), 2, pending, consumers, released or [])


P1, P2 = ((5, 1), T, 1), ((5, 2), T, 1)
BROKEN: dict[str, bytes] = {
    "nothing after the type": b"\x1b",
    "a wrong length": plain(size=3),
    "a last id below the entries": plain(last_id=(5, 1)),
    "fewer added than present": plain(added=1),
    "ids that do not rise": plain(nodes=[entries((5, 1, True), (5, 1, True))]),
    "ids that fall": plain(nodes=[entries((5, 2, True), (5, 1, True))]),
    "nodes that fall": plain(nodes=[entries((5, 2, True)), entries((5, 1, True))]),
    "two nodes with one id": plain(nodes=[entries((5, 1, True)), entries((5, 1, True))]),
    "the id 0-0": plain(nodes=[entries((0, 0, True), (5, 2, True))]),
    "a short id of a node": plain(nodes=[old.string(b"x") + old.string(b"y")]),
    "a long id of a node": plain(nodes=[old.string(bytes(17)) + old.string(old.listpack([0] * 4))]),
    "a node that is empty": plain(nodes=[old.string(bytes(16)) + old.string(b"")]),
    "a node of text": plain(nodes=[old.string(bytes(16)) + old.string(old.listpack([b"a"]))]),
    "an entry without fields": plain(
        nodes=[old.string(old.raw((5, 1))) + old.string(old.listpack([1, 0, 0, 0, 2, 0, 0, 3]))],
        size=1,
    ),
    "unknown flags": plain(
        nodes=[old.string(old.raw((5, 1))) + old.string(old.listpack([1, 0, 0, 0, 4, 0, 0, 3]))],
        size=1,
    ),
    "a number of fields below zero": plain(
        nodes=[old.string(old.raw((5, 1))) + old.string(old.listpack([1, 0, -1, 0]))], size=1
    ),
    "two groups of one name": plain(groups=[grouped([], []), grouped([], [])]),
    "two consumers of one name": plain(groups=[grouped([], [(b"c", T, T, []), (b"c", T, T, [])])]),
    "pending ids that fall": plain(groups=[grouped([P2, P1], [(b"c", T, T, [(5, 1), (5, 2)])])]),
    "a pending entry without an owner": plain(groups=[grouped([P1, P2], [(b"c", T, T, [(5, 1)])])]),
    "an entry with two owners": plain(
        groups=[grouped([P1], [(b"c", T, T, [(5, 1)]), (b"d", T, T, [(5, 1)])])]
    ),
    "an entry owned twice": plain(groups=[grouped([P1], [(b"c", T, T, [(5, 1), (5, 1)])])]),
    "owned and released": plain(groups=[grouped([P1], [(b"c", T, T, [(5, 1)])], [(5, 1)])]),
    "released twice": plain(groups=[grouped([P1], [], [(5, 1), (5, 1)])]),
    "owned and not pending": plain(groups=[grouped([], [(b"c", T, T, [(5, 1)])])]),
    "released and not pending": plain(groups=[grouped([], [], [(5, 1)])]),
    "delivered before 1970": plain(groups=[grouped([((5, 1), -1, 1)], [(b"c", T, T, [(5, 1)])])]),
    "seen before 1970": plain(groups=[grouped([], [(b"c", -1, T, [])])]),
    "active before 1970": plain(groups=[grouped([], [(b"c", T, -2, [])])]),
    "a window of no seconds": plain(known=old.idempotency(0, 100)),
    "a window of more than a day": plain(known=old.idempotency(86401, 100)),
    "no room for iids": plain(known=old.idempotency(100, 0)),
    "room for too many iids": plain(known=old.idempotency(100, 10_001)),
    "more iids than room": plain(
        known=old.idempotency(100, 1, [(b"p", [(b"a", (5, 1)), (b"b", (5, 2))])])
    ),
    "an iid twice": plain(
        known=old.idempotency(100, 9, [(b"p", [(b"a", (5, 1)), (b"a", (5, 2))])])
    ),
    "an empty iid": plain(known=old.idempotency(100, 9, [(b"p", [(b"", (5, 1))])])),
    "an empty producer": plain(known=old.idempotency(100, 9, [(b"", [(b"a", (5, 1))])])),
    "a producer twice": plain(
        known=old.idempotency(100, 9, [(b"p", [(b"a", (5, 1))]), (b"p", [(b"b", (5, 1))])])
    ),
}


def test_the_stream_before_the_changes_is_valid() -> None:
    assert load(old.sealed(plain()))


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_an_inconsistent_stream_is_refused(body: bytes) -> None:
    with pytest.raises(BadPayload):
        load(old.sealed(body))


@pytest.mark.parametrize("kind", [15, 19, 21, 26, 27])
def test_a_stream_that_ends_early_is_refused(kind: int) -> None:
    # Given a valid value
    body = of_kind(kind)[:-10]

    # Then each of its prefixes is refused
    for end in range(1, len(body)):
        with pytest.raises(BadPayload):
            load(old.sealed(body[:end]))


def test_bytes_after_a_value_are_ignored_as_in_redis() -> None:
    assert load(old.sealed(plain() + b"more")) == load(old.sealed(plain()))
