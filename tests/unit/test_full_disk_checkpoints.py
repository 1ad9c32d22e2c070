"""A disk that is full of journal is emptied by a checkpoint, because room for its image is left free."""

from __future__ import annotations

from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure

MIB = 1024 * 1024


def test_a_checkpoint_makes_room_when_the_disk_is_full_of_journal() -> None:
    # Given a store with an image, little content, and a disk that its journal has filled
    store = LocalStore()
    client = store.client()
    client("XADD", "s", "*", "text", "x" * MIB)
    client("BGREWRITEAOF")
    assert store.files is not None
    store.files.capacity = store.files.used_bytes() + 6 * MIB
    # When it is written to, with the content remaining small
    words = ("XADD", "s", "MAXLEN", "1", "*", "text", "x" * 500_000)
    replies = [client(*words) for _ in range(100)]
    # Then a write that is refused causes a checkpoint, and those after it are accepted
    refused = [number for number, reply in enumerate(replies) if isinstance(reply, Failure)]
    assert refused
    assert all(number + 1 not in refused for number in refused)
    # And nothing is lost
    last = client("XRANGE", "s", "-", "+")
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == last
