"""The faults of the harness. Each happens, lasts for a random time, and is undone before its function returns. `Group.strike`
records the time at which it has happened.

`Fault.down` is the number of members that the others cannot reach at the same time, or whose only copy of an answered
write may be out of reach while a primary is chosen. With ``synchronous-replicas n``, nothing answered may be lost in
a fault with ``down <= n``. In other faults losses are counted, and do not fail the run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.failover.members import CLIENTS, LOST, SENTINELS, Group, Process, until
from tests.failover.network import Loss

HAND_OVER_SECONDS: Final = 10.0
"""How long a failover by hand may take. If it is refused or given up, the group stays as it was."""


GIVEN_UP: Final = "given up"


def kill_primary(group: Group, rng: random.Random) -> None:
    """SIGKILL of the primary. It is back before or after another one was promoted."""
    primary = group.primary()
    primary.kill()
    group.strike()
    time.sleep(rng.choice((rng.uniform(0.1, 1.0), rng.uniform(2.0, 6.0))))
    start(primary)


def stop_primary(group: Group, rng: random.Random) -> None:
    """SIGSTOP of the primary, and SIGCONT, when it still believes that it is one."""
    primary = group.primary()
    primary.pause()
    group.strike()
    time.sleep(rng.choice((rng.uniform(0.2, 1.5), rng.uniform(2.5, 8.0))))
    primary.resume()


def kill_replica(group: Group, rng: random.Random) -> None:
    """SIGKILL of a replica."""
    replica = rng.choice(group.replicas())
    replica.kill()
    group.strike()
    time.sleep(rng.uniform(0.1, 4.0))
    start(replica)


def cut_off_replicas(group: Group, rng: random.Random) -> None:
    """A partition of the primary from its replicas. The Sentinels and the clients reach all of them."""
    replicas = [one.side for one in group.replicas()]
    group.net.cut([group.primary().side], replicas, loss=rng.choice(list(Loss)))
    group.strike()
    time.sleep(rng.uniform(1.0, 6.0))
    group.net.heal()


def cut_off_primary(group: Group, rng: random.Random) -> None:
    """A partition of the primary and half of the clients from all others."""
    some = [group.primary().side, CLIENTS[0]]
    others = [side for side in group.net.sides if side not in some]
    group.net.cut(some, others, loss=rng.choice(list(Loss)))
    group.strike()
    time.sleep(rng.uniform(2.0, 9.0))
    group.net.heal()


def cut_off_pair(group: Group, rng: random.Random) -> None:
    """A partition of the primary, a replica and half of the clients from the other replica and all Sentinels."""
    some = [group.primary().side, rng.choice(group.replicas()).side, CLIENTS[0]]
    others = [side for side in group.net.sides if side not in some]
    group.net.cut(some, others, loss=rng.choice(list(Loss)))
    group.strike()
    time.sleep(rng.uniform(2.0, 9.0))
    group.net.heal()


def mute_primary(group: Group, rng: random.Random) -> None:
    """The primary hears all others, and none of them hears it."""
    _one_way(group, rng, outwards=True)


def deafen_primary(group: Group, rng: random.Random) -> None:
    """All others hear the primary, and it hears none of them."""
    _one_way(group, rng, outwards=False)


def _one_way(group: Group, rng: random.Random, *, outwards: bool) -> None:
    primary = [group.primary().side]
    others = [side for side in group.net.sides if side not in primary]
    some, to = (primary, others) if outwards else (others, primary)
    group.net.cut(some, to, one_way=True, loss=rng.choice(list(Loss)))
    group.strike()
    time.sleep(rng.uniform(2.0, 7.0))
    group.net.heal()


def hand_over(group: Group, rng: random.Random) -> str:
    """SENTINEL FAILOVER under load."""
    before = group.primary()
    group.strike()
    try:
        group.hand_over()
        until(lambda: group.chosen() is not before, "another primary", HAND_OVER_SECONDS)
    except (*LOST, TimeoutError) as error:
        return f"{GIVEN_UP}: {error}"
    return ""


def failover_command(group: Group, rng: random.Random) -> str:
    """FAILOVER under load, to a random replica. The Sentinels are not asked, and find out."""
    primary, target = group.primary(), rng.choice(group.replicas())
    group.strike()
    try:
        primary.ask("FAILOVER", "TO", target.host, target.port, "TIMEOUT", 5_000)
        until(lambda: target.ask("ROLE")[0] == b"master", "it is handed over", HAND_OVER_SECONDS)
    except (*LOST, TimeoutError) as error:
        return f"{GIVEN_UP}: {error}"
    return ""


def kill_primary_and_sentinel(group: Group, rng: random.Random) -> None:
    """SIGKILL of the primary, and of a Sentinel while the Sentinels choose another primary."""
    primary = group.primary()
    watcher = group.sentinels[rng.randrange(len(SENTINELS))]
    primary.kill()
    group.strike()
    time.sleep(rng.uniform(0.5, 2.0))
    watcher.kill()
    time.sleep(rng.uniform(1.0, 4.0))
    for one in (primary, watcher):
        start(one)
    group.quicken()


def kill_primary_and_stop_replica(group: Group, rng: random.Random) -> None:
    """SIGKILL of the primary, and SIGSTOP of a replica while the Sentinels choose another primary."""
    primary, replica = group.primary(), rng.choice(group.replicas())
    primary.kill()
    group.strike()
    time.sleep(rng.uniform(0.2, 2.5))
    replica.pause()
    time.sleep(rng.uniform(1.0, 4.0))
    replica.resume()
    start(primary)


def kill_two(group: Group, rng: random.Random) -> None:
    """SIGKILL of the primary, and of a replica while the Sentinels choose another primary."""
    primary, replica = group.primary(), rng.choice(group.replicas())
    primary.kill()
    group.strike()
    time.sleep(rng.uniform(0.2, 2.5))
    replica.kill()
    time.sleep(rng.uniform(1.0, 4.0))
    for one in rng.sample([primary, replica], 2):
        start(one)
        time.sleep(rng.uniform(0.0, 1.0))


def restart_all(group: Group, rng: random.Random) -> None:
    """SIGKILL of all members and Sentinels at once; they are back in a random order."""
    everything: list[Process] = [*group.members, *group.sentinels]
    for one in everything:
        one.pause()  # so that none sees the end of another
    for one in everything:
        one.kill()
    group.strike()
    time.sleep(rng.uniform(0.1, 2.0))
    for one in rng.sample(everything, len(everything)):
        one.start()
    for one in everything:
        one.await_answer()
    group.quicken()


def start(one: Process) -> None:
    """Start a killed process and wait until it answers."""
    one.start()
    one.await_answer()


class Fault(NamedTuple):
    """A kind of fault."""

    name: str
    play: Callable[[Group, random.Random], str | None]
    """Returns what went wrong with the fault itself."""
    weight: int
    down: int = 1
    partition: bool = False
    """Whether it needs namespaces."""


FAULTS: Final = (
    Fault("kill the primary", kill_primary, 6),
    Fault("stop the primary", stop_primary, 4),
    Fault("kill a replica", kill_replica, 1),
    Fault("cut the primary off its replicas", cut_off_replicas, 2, partition=True),
    Fault("cut the primary and clients off", cut_off_primary, 4, partition=True),
    Fault("cut the primary, a replica and clients off", cut_off_pair, 1, down=2, partition=True),
    Fault("nobody hears the primary", mute_primary, 2, partition=True),
    Fault("the primary hears nobody", deafen_primary, 2, partition=True),
    Fault("SENTINEL FAILOVER", hand_over, 3),
    Fault("FAILOVER", failover_command, 2),
    Fault("kill the primary, then a Sentinel", kill_primary_and_sentinel, 2),
    Fault("kill the primary, then stop a replica", kill_primary_and_stop_replica, 1, down=2),
    Fault("kill the primary, then a replica", kill_two, 1, down=2),
    Fault("restart everything", restart_all, 1),
)


def chosen(*, only: str = "", without: str = "") -> list[Fault]:
    """The faults whose names contain ``only`` and do not contain ``without``. Raises `ValueError` if there is none."""
    possible = [one for one in FAULTS if only in one.name and not (without and without in one.name)]
    if not possible:
        names = ", ".join(one.name for one in FAULTS)
        raise ValueError(f"no fault has {only!r} in its name and not {without!r}: {names}")
    return possible


def drawn(rng: random.Random, possible: Sequence[Fault]) -> Fault:
    """Draw a fault."""
    return rng.choices(possible, [one.weight for one in possible])[0]
