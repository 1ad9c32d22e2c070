"""``headwater replicas``: show the replicas of a primary, or the primary of a replica.

headwater replicas -o json
headwater replicas --url redis://store-1:6379 redis://store-2:6379
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from headwater.cli.command import Positional, watched
from headwater.cli.output import UNHEALTHY, Output, OutputFormat, print_table, say, show
from headwater.cli.query import DEFAULT_URL, Url, query

if TYPE_CHECKING:
    from headwater.operations.replication import Link, ReplicaRow, ReplicationMember

Members = Annotated[
    list[str] | None,
    Positional(metavar="URL…", help="Other members of the group, to compare their histories."),
]


@watched
def replicas(
    others: Members = None,
    *,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show who replicates whom, and how far behind each replica is.

    For a primary, lists its replicas and what it requires of them; for a replica, its primary and its
    own replicas. With other members, also finds changes that one has and another lacks. The exit status
    is 3 if something is wrong, or unknown because the user may not query it. Changes nothing.
    """
    from headwater.client.redaction import redacted

    found = _found([url, *(others or ())])
    documents = [{"url": redacted(address), **seen._asdict()} for address, seen in found]
    show(documents, output, lambda: _print(found))
    if not all(seen.healthy for _url, seen in found):
        raise click.exceptions.Exit(UNHEALTHY)


def _found(urls: list[str]) -> list[tuple[str, ReplicationMember]]:
    """Query each member, and compare it with the others."""
    from headwater.operations.replication import comparison, replication

    seen = [query(one, replication()) for one in urls]
    found = []
    for url, one in zip(urls, seen, strict=True):
        between = [comparison(one, other) for other in seen if other is not one]
        found.append((url, one._replace(problems=[*one.problems, *filter(None, between)])))
    return found


def _print(found: list[tuple[str, ReplicationMember]]) -> None:
    from headwater.client.redaction import redacted

    for number, (url, seen) in enumerate(found):
        if number:
            say()
        say(f"{redacted(url)}: {_summary(seen)}")
        if seen.replicas:
            titles = ("REPLICA", "STATE", "OFFSET", "BEHIND", "SILENT", "ON DISK")
            print_table(titles, [_row(one) for one in seen.replicas])
        for one in seen.problems:
            say(f"  {one.name}: {one.statement}")
        if seen.unknown:
            say(f"  the server does not tell this user: {'; '.join(seen.unknown)}")


def _row(one: ReplicaRow) -> tuple[str, ...]:
    behind = "unknown" if one.behind_bytes is None else f"{one.behind_bytes:,} bytes"
    silent = "unknown" if one.silent_s is None else f"{one.silent_s} s"
    return one.address, one.state, _count(one.offset), behind, silent, _count(one.durable_offset)


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _summary(seen: ReplicationMember) -> str:
    from headwater.operations.replication import ServerRole

    if seen.role is ServerRole.EMBEDDED:
        return "an embedded store has no replicas; `headwater serve` on its directory can have some"
    if seen.role is ServerRole.UNKNOWN:
        return "unknown"
    where = f"at offset {_count(seen.offset)}"
    many = {0: "no replicas", 1: "1 replica"}.get(
        len(seen.replicas), f"{len(seen.replicas)} replicas"
    )
    if seen.link is not None:
        return f"a replica of {seen.link.primary} {where}, {_link(seen.link)}; {many}"
    required = seen.required
    return (
        f"a primary {where}, {many}; synchronous-replicas {_count(required.synchronous_replicas)}, "
        f"min-replicas-to-write {_count(required.min_replicas_to_write)}"
    )


def _link(link: Link) -> str:
    from headwater.operations.replication import LinkState
    from headwater.operations.times import length_of_time

    if link.state is LinkState.UP:
        return f"link up, heard {link.heard_s} s ago" if link.heard_s is not None else "link up"
    if link.state is LinkState.COPYING:
        total = "" if link.copy_bytes is None else f" of {link.copy_bytes:,}"
        return f"receiving a copy: {_count(link.copied_bytes)}{total} bytes"
    return (
        f"link down for {'unknown' if link.down_s is None else length_of_time(link.down_s * 1000)}"
    )
