"""Checks whether a store can be used, for probes of an orchestrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.groups.protocol.operation import Operation, Refused
from headwater.operations.refusals import TAKES_WRITES, refusals


class Readiness(NamedTuple):
    """Readiness of a store: it has loaded its data, and accepts what workers send."""

    loaded: bool
    problems: Sequence[str]
    """Reasons why the store refuses commands of workers, or why this is unknown; empty if it accepts them."""

    @property
    def ready(self) -> bool:
        """True if the store can be used."""
        return self.loaded and not self.problems


def readiness() -> Operation[Readiness]:
    """Return the store's readiness."""
    replies = yield [["PING"]]
    if isinstance(replies[0], Refused):
        return Readiness(replies[0].code != "LOADING", [str(replies[0])])
    server = yield from refusals()
    problems = [f"{one.code}: {one.statement}" for one in server.found if one.code != "NOPERM"]
    if TAKES_WRITES in server.unknown:
        problems.append(f"the server does not tell this user {TAKES_WRITES}")
    return Readiness(True, problems)
