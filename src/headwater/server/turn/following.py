"""Applies the record groups of a primary on a replica.

Rule 1. Facts are applied by the mutators that wrote them at the primary (engine/replay), which write them again: into the
        replica's own journal. If they write something else, the states differ, and the group is refused.
Rule 2. A group has the time of the primary. Its turn is the replica's.
"""

from __future__ import annotations

from headwater.engine.replay.replay import Replay
from headwater.journal.format.records import GROUP_HEADER_BYTES
from headwater.server.services.replication.link import Groups, LinkRefused
from headwater.server.services.services import Services


def apply_groups(services: Services, groups: Groups) -> int:
    """Apply groups in order. Return the number of those for which the journal had room.

    Raises `LinkRefused` if a group does not fit the state; changes of it may have been applied.
    """
    records, keyspace = services.records, services.keyspace
    written, replay = keyspace.facts.data, Replay(keyspace)
    rows = zip(groups.starts, groups.ends, groups.times, strict=True)
    for number, (start, end, now_ms) in enumerate(rows):
        if records.admit(len(written) + GROUP_HEADER_BYTES + end - start) is not None:
            return number
        mark = records.begin()
        facts = groups.data[start:end]
        try:
            replay.apply(facts, now_ms)
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise LinkRefused(
                f"the primary sent a change that does not fit this state: {type(error).__name__}: {error}"
            ) from error
        if memoryview(written)[mark + GROUP_HEADER_BYTES :] != facts:
            raise LinkRefused("a change of the primary had another effect here: the states differ")
        records.seal(mark, now_ms)
    keyspace.unseen.clear()
    return len(groups.starts)
