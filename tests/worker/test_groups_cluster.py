"""Consumers of a group on a cluster node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from headwater.groups.protocol import capabilities
from headwater.groups.protocol.operation import run, single
from headwater.groups.settling.settling import Addition, How, Settlement, settle
from headwater.messages.keys import delays_key
from tests import peers
from tests.worker.core import CLAIM_AFTER_MS, Core
from tests.worker.outages import PEERS

pytestmark = pytest.mark.slow

StartPeer = Callable[..., peers.Peer]


def _node(peer: StartPeer, name: str) -> peers.Peer:
    bus = str(peers.free_port())
    return peer(name, "--cluster-enabled", "yes", "--cluster-port", bus)


@pytest.fixture(params=PEERS)
def node(request: pytest.FixtureRequest, peer: StartPeer) -> Iterator[redis.Redis]:
    """A node that serves every slot and knows a second node, which serves none."""
    first, second = _node(peer, request.param), _node(peer, request.param)
    with redis.Redis.from_url(first.url) as client, redis.Redis.from_url(second.url) as other:
        run(client, single("CLUSTER", "ADDSLOTSRANGE", 0, 16383))
        bus = int(second.arguments[second.arguments.index("--cluster-port") + 1])
        run(client, single("CLUSTER", "MEET", "127.0.0.1", second.port, bus))
        target: bytes = run(other, single("CLUSTER", "MYID"))
        while b"cluster_state:ok" not in run(client, single("CLUSTER", "INFO")):
            pass
        while target not in run(client, single("CLUSTER", "NODES")):
            pass
        yield client


def test_the_probe_recognises_a_cluster_node(node: redis.Redis) -> None:
    assert run(node, capabilities.probe()).cluster


def test_entries_of_a_migrating_slot_are_settled_and_renewed(node: redis.Redis) -> None:
    # Given entries that were read, and no other key of the group
    core = Core.joined(_url(node))
    for value in (b"a", b"b", b"c", b"d"):
        node.xadd("s", {"v": value})
    first, second, third, fourth = core.read()
    assert node.exists(delays_key("s", "g")) == 0

    # When the stream's slot is migrating to another node
    target = _other_node(node)
    slot = run(node, single("CLUSTER", "KEYSLOT", "s"))
    run(node, single("CLUSTER", "SETSLOT", slot, "MIGRATING", target))

    # Then no command uses a key that does not exist
    assert core.renew(first, second) == [True, True]
    assert core.settle(first).done
    assert core.settle(second, How.FAIL).done
    assert core.settle(third, How.FAIL, delay_ms=1_000).done
    assert core.settle(fourth, How.SILENT).done
    core.close()


def test_in_a_migrating_slot_only_settlements_that_need_another_key_wait(node: redis.Redis) -> None:
    # Given a migrating slot, and entries of which one has a result and one a long delay
    core = Core.joined(_url(node))
    for value in (b"a", b"b", b"c"):
        node.xadd("s", {"v": value})
    entries = core.read()
    slot = run(node, single("CLUSTER", "KEYSLOT", "s"))
    run(node, single("CLUSTER", "SETSLOT", slot, "MIGRATING", _other_node(node)))

    # When they are settled together
    result = Addition("{s}.results", [(b"a", b"1")])
    settlements = [
        Settlement(entries[0].id, How.ACK),
        Settlement(entries[1].id, How.ACK, additions=[result]),
        Settlement(entries[2].id, How.FAIL, delay_ms=10 * CLAIM_AFTER_MS),
    ]
    plain, added, delayed = core.do(settle(core.member, settlements))

    # Then the settlement that needs no other key succeeds at once
    assert plain.done
    assert (added.error.code, delayed.error.code) == ("TRYAGAIN", "TRYAGAIN")
    run(node, single("CLUSTER", "SETSLOT", slot, "STABLE"))
    again = core.do(settle(core.member, settlements[1:]))
    assert [one.done for one in again] == [True, True]
    assert node.xlen("{s}.results") == 1
    core.close()


def test_a_retry_without_a_delay_is_claimed_at_once(node: redis.Redis) -> None:
    core = Core.joined(_url(node))
    node.xadd("s", {"v": b"a"})
    core.read()
    node.xadd("s", {"v": b"b"})
    (entry,) = core.read()
    core.settle(entry, How.FAIL)
    assert [one.id for one in core.read()] == [entry.id]
    core.close()


def test_new_entries_of_a_migrating_slot_are_read(node: redis.Redis) -> None:
    # Given an entry of a stream for which most of the group's keys do not exist
    core = Core.joined(_url(node))
    node.xadd("s", {"v": b"a"})

    # When the stream's slot is migrating to another node
    slot = run(node, single("CLUSTER", "KEYSLOT", "s"))
    run(node, single("CLUSTER", "SETSLOT", slot, "MIGRATING", _other_node(node)))

    # Then the entry is read; a due entry is claimed only once the slot is stable again
    (entry,) = core.read()
    core.settle(entry, How.FAIL)
    assert core.read() == []
    run(node, single("CLUSTER", "SETSLOT", slot, "STABLE"))
    found = core.read() or core.read()  # the first read only finds the due time
    assert [one.id for one in found] == [entry.id]
    core.close()


def _other_node(client: redis.Redis) -> bytes:
    lines: list[bytes] = run(client, single("CLUSTER", "NODES")).splitlines()
    return next(line.split()[0] for line in lines if b"myself" not in line)


def _url(client: redis.Redis) -> str:
    settings: Any = client.connection_pool.connection_kwargs
    return f"redis://{settings['host']}:{settings['port']}"
