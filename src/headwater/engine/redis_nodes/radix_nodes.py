"""Counts the nodes of Redis's radix tree over the keys of a stream's nodes (XINFO), without building it.

The tree over sorted keys of 16 bytes is determined by the *depths*: for each pair of neighbouring keys, the number of
leading bytes that they have in common. For the keys ``aa``, ``ab`` and ``b`` the depths are 1 and 0:

    depths      -1    1    0    -1        -1 stands for the ends before the first and after the last key
    keys           aa   ab    b

Between two depths is a key, and its leaf is below the deeper of the two. A depth that is above both of its
neighbours is an inner node, which can be counted and removed: the deeper of its neighbours is its parent, and
one key takes the place of all below it. Equal neighbours are one inner node.

Rule. The depths that remain of some consecutive keys decrease and then increase, so they are few, and counting
      continues from them as from all depths. Nodes that do not change are counted once.

Source: Redis, rax.c (raxGenericInsert): a node either has several children or represents several bytes.
"""

from __future__ import annotations

KEY_BYTES = 16
"""Size of a key: ms and seq of an id, the highest byte first."""

_OUTSIDE = -1


class RadixCount:
    """The number of nodes for the depths that were added.

    >>> count = RadixCount()
    >>> count.add(7)
    >>> count.add(6)
    >>> count.count, count.rest
    (0, [7, 6])
    >>> radix_nodes([count], [])
    9
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of nodes that were counted and removed, less the nodes of the keys that took their places."""
        self.rest: list[int] = []
        """The depths that remain."""

    def add(self, depth: int) -> None:
        """Add the depth between the last key and the next."""
        rest = self.rest
        while rest:
            last = rest[len(rest) - 1]
            if last < depth:
                break
            if last == depth:
                self.count += _leaf(depth)
                return
            if len(rest) == 1 or rest[len(rest) - 2] >= last:
                break
            parent = max(depth, rest[len(rest) - 2])
            self.count += (2 if last > parent + 1 else 1) + 2 * _leaf(last) - _leaf(parent)
            rest.pop()
        rest.append(depth)


def radix_nodes(parts: list[RadixCount], between: list[int]) -> int:
    """Return the number of nodes for the keys of all ``parts``, with the depths ``between`` the parts. Each
    part must have at least one key. Without parts, return 1: an empty tree has a root."""
    if not parts:
        return 1
    whole = RadixCount()
    whole.add(_OUTSIDE)
    for at, part in enumerate(parts):
        if at:
            whole.add(between[at - 1])
        whole.count += part.count
        for depth in part.rest:
            whole.add(depth)
    whole.add(_OUTSIDE)
    return whole.count


def common_bytes(ms: int, seq: int, other_ms: int, other_seq: int) -> int:
    """Return the number of leading bytes that the keys of two ids have in common.

    >>> common_bytes(5, 0, 5, 255), common_bytes(5, 0, 261, 0)
    (15, 6)
    """
    found = 0
    differing = ms ^ other_ms
    if not differing:
        found, differing = 8, seq ^ other_seq
        if not differing:
            return KEY_BYTES
    found += 7
    while differing > 255:
        differing >>= 8
        found -= 1
    return found


def _leaf(depth: int) -> int:
    """Return the number of nodes of a key that differs from its neighbours after ``depth`` bytes: one for its end,
    and one for the rest of its bytes."""
    return 1 if depth == KEY_BYTES - 1 else 2
