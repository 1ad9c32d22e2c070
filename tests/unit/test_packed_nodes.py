"""Nodes of large streams: packed runs answer like nodes that are not packed (nodes.py, rule 3)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.accounts.memory_account import MemoryAccount
from headwater.engine.redis_nodes.node_runs import RUN_NODES
from headwater.engine.redis_nodes.nodes import NodeIndex, Weighing

NAMES = (b"$1\r\na\r\n", b"$2\r\nbb\r\n")


@dataclass
class Node:
    """What an index must know of a node."""

    first: int
    last: int
    names: bytes
    live: set[int]
    taken: int = 0


@dataclass
class History:
    """An index and what it must contain. Entry n has the id (n // 3)-(n % 3)."""

    index: NodeIndex = field(default_factory=NodeIndex)
    nodes: list[Node] = field(default_factory=list)
    next: int = 1

    def add(self, *, opens: bool, names: bytes) -> None:
        wire = bytearray(names + b"$1\r\nv\r\n")
        opens = opens or not self.nodes
        self.index.add(*divmod(self.next, 3), wire, 0, len(wire), opens)
        if opens:
            self.nodes.append(Node(self.next, self.next, names, set()))
        self.nodes[-1].live.add(self.next)
        self.nodes[-1].last = self.next
        self.nodes[-1].taken += 1
        self.next += 1

    def fill(self, nodes: int, rng: random.Random) -> None:
        """Add that many nodes of one to three entries. Neighbours often have the same names."""
        names = rng.choice(NAMES)
        for _ in range(nodes):
            names = rng.choice(NAMES) if rng.random() < 0.05 else names
            for entry in range(rng.randint(1, 3)):
                self.add(opens=not entry, names=names)

    def live(self) -> list[int]:
        return sorted(entry for node in self.nodes for entry in node.live)

    def drop(self, entry: int) -> None:
        self.index.drop(*divmod(entry, 3))
        for at, node in enumerate(self.nodes):
            if entry in node.live:
                node.live.remove(entry)
                if not node.live:
                    del self.nodes[at]
                break

    def trim(self, entry: int) -> None:
        """Remove all entries up to this one."""
        gone = [one for one in self.live() if one <= entry]
        self.index.trim_through(*divmod(entry, 3), len(gone))
        self.nodes = [node for node in self.nodes if node.last > entry]
        for node in self.nodes:
            node.live -= set(gone)

    def check(self) -> None:
        index, nodes = self.index, self.nodes
        assert len(index) == len(nodes)
        for at, node in enumerate(nodes):
            there = (index.first(at), index.last(at), index.live(at), index.taken(at))
            assert there == (
                divmod(node.first, 3),
                divmod(node.last, 3),
                len(node.live),
                node.taken,
            )
            assert index.names_of(at) == node.names
        keys = [(ms << 64 | seq).to_bytes(16, "big") for ms, seq in map(_first, nodes)]
        assert index.radix_tree_nodes() == tree_nodes(keys)
        at = 0
        while at < len(nodes):
            run = index.run_at(at)
            if run is None:
                break
            covered = nodes[at : at + run.count]
            assert run.live == sum(len(node.live) for node in covered)
            assert (run.last_ms, run.last_seq) == divmod(covered[-1].last, 3)
            at += run.count
        assert at == 0 or len(nodes) > at, "the newest node is packed"


def _first(node: Node) -> tuple[int, int]:
    return divmod(node.first, 3)


def tree_nodes(keys: list[bytes]) -> int:
    """The nodes of a compressed radix tree, by building it: a run of bytes without a branch is one node."""
    if not keys:
        return 1
    if len(keys) == 1:
        return 2 if keys[0] else 1
    heads = sorted({key[:1] for key in keys})
    if len(heads) == 1:
        while len({key[:1] for key in keys}) == 1:
            keys = [key[1:] for key in keys]
        return 1 + tree_nodes(keys)
    return 1 + sum(tree_nodes([key[1:] for key in keys if key[:1] == head]) for head in heads)


@pytest.mark.parametrize("seed", range(4))
def test_packed_nodes_answer_like_all_others(seed: int) -> None:
    # Given some hundred nodes, most of them packed
    rng, history = random.Random(seed), History()
    history.fill(5 * RUN_NODES, rng)
    assert history.index.packed is not None
    assert history.index.packed.count >= 3 * RUN_NODES
    # When entries are deleted, one here and there or many in order, trimmed and added
    for _ in range(40):
        live = history.live()
        step = rng.randrange(6)
        if step < 2 and live:
            history.drop(rng.choice(live))
        elif step == 2 and live:
            at = rng.randrange(len(live))
            for entry in live[at : at + rng.randint(1, 150)]:
                history.drop(entry)
        elif step == 3 and live:
            history.trim(live[rng.randrange(min(len(live), 200))])
        elif step == 4:
            history.fill(rng.randint(1, RUN_NODES), rng)
        else:
            history.index = history.index.copy()
        # Then they are those that the test knows
        history.check()


def test_newest_nodes_are_unpacked_when_they_are_the_only_ones() -> None:
    # Given packed nodes
    rng, history = random.Random(1), History()
    history.fill(3 * RUN_NODES, rng)
    # When the newest are deleted, from the last on
    while history.nodes:
        history.drop(max(history.nodes[-1].live))
        # Then the next entry could always be added to the newest that is left
        if len(history.nodes) % 16 == 0:
            history.check()
    history.add(opens=False, names=NAMES[0])
    history.check()


def test_a_copy_keeps_its_nodes_when_the_original_changes() -> None:
    # Given a copy of an index with packed nodes, one run of them open
    rng, history = random.Random(2), History()
    history.fill(4 * RUN_NODES, rng)
    history.drop(1)
    copy = History(
        history.index.copy(), [Node(**vars(node)) for node in history.nodes], history.next
    )
    for node in copy.nodes:
        node.live = set(node.live)
    # When both change
    for entry in history.live()[::7]:
        history.drop(entry)
    copy.trim(copy.live()[40])
    # Then neither has the changes of the other
    history.check()
    copy.check()


def test_what_an_image_has_of_nodes_restores_them() -> None:
    # Given an index with packed nodes
    rng, history = random.Random(3), History()
    history.fill(5 * RUN_NODES, rng)
    # When it is read in parts that do not fit its runs, and built from them
    made = NodeIndex()
    for first in range(0, len(history.index), 100):
        made.extend(*history.index.part(first, min(first + 100, len(history.index))))
    # Then it is equal, and packed too
    assert made.packed is not None
    history.index = made
    history.check()


def test_packed_nodes_take_a_fifth_of_the_memory_and_leave_the_account() -> None:
    # Given an account, and nodes of 30 entries
    account = MemoryAccount()
    history = History(NodeIndex(Weighing(account)))
    for entry in range(30 * 40 * RUN_NODES):
        history.index.add(10**12 + 4 * entry, 0, bytearray(NAMES[0] * 2), 0, 14, not entry % 30)
    # Then a packed node is booked with less than 20 bytes instead of 70
    packed = history.index.packed
    assert packed is not None
    assert 8 < packed.size / packed.count < 20
    assert account.nodes >= packed.size
    # And changes are booked, and everything leaves the account with the index
    before = account.nodes
    history.index.trim_through(10**12 + 4 * 30 * 20 * RUN_NODES, 0, 0)
    assert account.nodes < before * 0.6
    del history
    assert account.nodes == 0


@given(st.sets(st.tuples(st.integers(0, 2**64 - 1) | st.integers(0, 600), st.integers(0, 300))))
def test_the_radix_tree_of_any_ids_has_the_nodes_of_one_that_is_built(
    ids: set[tuple[int, int]],
) -> None:
    index, wire = NodeIndex(), bytearray(NAMES[0] * 2)
    for ms, seq in sorted(ids):
        index.add(ms, seq, wire, 0, len(wire), True)
    keys = [(ms << 64 | seq).to_bytes(16, "big") for ms, seq in sorted(ids)]
    assert index.radix_tree_nodes() == tree_nodes(keys)
