"""``headwater acl``: the command that makes a user with exactly the rights that it needs.

headwater acl worker orders invoices
headwater acl viewer --redis
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
    bool, Option("--redis", help="For Redis 7.0 or later, or Valkey, instead of Headwater.")
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
    """Print the least rights of workers.

    STREAM is each stream that they read, or publish to. Replace PASSWORD before you run the command.
    """
    _print("worker", streams, user, redis=redis)


@app.add()
def viewer(streams: Streams = None, *, redis: Redis = False, user: User = None) -> None:
    """Print the least rights of an operator who only looks.

    It may not read ACL LOG and the configuration, which hold what others must not know: `doctor` and
    `explain` say that this is unknown.
    """
    _print("viewer", streams, user, redis=redis)


@app.add()
def exporter(streams: Streams = None, *, redis: Redis = False, user: User = None) -> None:
    """Print the least rights of `headwater exporter`."""
    _print("exporter", streams, user, redis=redis)


@app.add()
def spark(
    streams: Streams = None,
    *,
    mode: Annotated[
        str,
        Option(
            metavar="log|group|sink|append",
            help="Reading in log mode or in group mode; writing exactly once or at least once.",
        ),
    ] = "log",
    redis: Redis = False,
    user: User = None,
) -> None:
    """Print the least rights of a Spark query."""
    if mode not in SPARK:
        raise wrong(f"--mode {mode}: expected one of {', '.join(SPARK)}")
    _print(SPARK[mode], streams, user or "spark", redis=redis)
