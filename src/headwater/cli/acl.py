"""``headwater acl``: print the ACL SETUSER command for a user with the minimum rights of its role.

headwater acl worker orders invoices
headwater acl viewer --redis
headwater acl exporter 'orders.*'
headwater acl replica
headwater acl sentinel
headwater acl spark orders --mode group
"""

from __future__ import annotations

from typing import Annotated

from headwater.cli.command import CommandGroup, Option, Positional, wrong

app = CommandGroup()

Streams = Annotated[
    list[str] | None,
    Positional(metavar="STREAM…", help="Names or patterns of streams. [default: all keys]"),
]
Redis = Annotated[
    bool, Option("--redis", help="Print the rights for Redis 7.0 or later, or Valkey.")
]
User = Annotated[str | None, Option(metavar="NAME", help="The user. [default: the role's name]")]
SPARK = {"log": "spark-log", "group": "spark-group", "sink": "spark-sink", "append": "spark-append"}


def _print(role: str, streams: list[str] | None, user: str | None, *, redis: bool) -> None:
    from headwater.operations.rights import rules

    print(
        "ACL", "SETUSER", user or role, "on", ">PASSWORD", *rules(role, streams or (), redis=redis)
    )


@app.add()
def worker(streams: Streams = None, *, redis: Redis = False, user: User = None) -> None:
    """Print the minimum rights of workers.

    Name each STREAM that they read or publish to. Replace PASSWORD in the printed command before you run it.
    """
    _print("worker", streams, user, redis=redis)


@app.add()
def viewer(streams: Streams = None, *, redis: Redis = False, user: User = None) -> None:
    """Print the minimum rights of an operator who only reads.

    The user cannot read ACL LOG or the configuration, which may contain secrets: `doctor` and
    `explain` report what depends on them as unknown.
    """
    _print("viewer", streams, user, redis=redis)


@app.add()
def exporter(streams: Streams = None, *, redis: Redis = False, user: User = None) -> None:
    """Print the minimum rights of `headwater exporter`."""
    _print("exporter", streams, user, redis=redis)


@app.add()
def replica(*, redis: Redis = False, user: User = None) -> None:
    """Print the minimum rights of a server that follows a primary.

    Create the user on every server of the group, and set masteruser and masterauth to it on each.
    """
    _print("replica", None, user, redis=redis)


@app.add()
def sentinel(*, user: User = None) -> None:
    """Print the minimum rights of Sentinel.

    Create the user on every server of the group. Sentinel logs in with `sentinel auth-user` and `auth-pass`.
    """
    _print("sentinel", None, user, redis=False)


@app.add()
def spark(
    streams: Streams = None,
    *,
    mode: Annotated[
        str,
        Option(
            metavar="log|group|sink|append",
            help="Read in log mode or group mode (log, group); write exactly or at least once (sink, append).",
        ),
    ] = "log",
    redis: Redis = False,
    user: User = None,
) -> None:
    """Print the minimum rights of a Spark query."""
    if mode not in SPARK:
        raise wrong(f"--mode {mode}: expected one of {', '.join(SPARK)}")
    _print(SPARK[mode], streams, user or "spark", redis=redis)
