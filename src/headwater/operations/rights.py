"""The rights that each kind of user needs, as rules of ACL SETUSER, limited to the keys that it uses.

Rule 1. A role lists the commands that its users send; `spark-group` has categories. Tests run the whole job of a
        role as a user with exactly these rules, on Headwater and on Redis, and the server denies nothing.
Rule 2. AUTH, HELLO and QUIT do not need a rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from headwater.errors import HeadwaterError
from headwater.messages.keys import related_key


class Role(NamedTuple):
    """The commands of a role, by server, and its keys: STREAM is a stream, RELATED the prefix of other keys."""

    about: str
    commands: str
    headwater: str
    """Commands that only Headwater has, or needs."""
    redis: str
    """Commands that Redis and Valkey need instead: scripts, and the commands that scripts call."""
    keys: Sequence[str]
    channels: str = "resetchannels"


_LOOKS: Final = (
    "acl|whoami client|info command|info exists get hget hgetall hlen hmget info scan select time xinfo|consumers xinfo|groups xinfo|stream "
    "xlen xpending xrange xread xrevrange"
)

ROLES: Final = {
    "worker": Role(
        "Read, settle, retry, bury and publish: STREAM is each stream that it reads or publishes to.",
        "client|id client|setinfo client|setname client|unblock command|info del discard eval evalsha exec exists get getdel hdel hget "
        "hgetall hexists hincrby hlen hmget hscan hset hsetnx info lindex llen lrange lrem multi pexpire ping rpush select set time unwatch wait watch xack xadd xautoclaim xclaim xdel xgroup|create xgroup|createconsumer "
        "xgroup|delconsumer xgroup|setid xinfo|consumers xinfo|groups xinfo|stream xlen xpending xrange xread xreadgroup "
        "xrevrange",
        "xcfgset xdelayed xnack xrenew xretire xsettle",
        "type zadd zcard zmscore zrange zrangebyscore zrem zscore",
        ("~STREAM", "~RELATED*"),
    ),
    "viewer": Role(
        "Look at streams, groups, entries and dead letters, and change nothing.",
        _LOOKS,
        "xcounters xdelayed xlag xsplit",
        "eval_ro zcard zmscore zrange",
        ("%R~STREAM", "%R~RELATED*"),
    ),
    "exporter": Role(
        "Serve metrics for Prometheus.",
        "command|info info scan select time xinfo|consumers xinfo|groups xlen xpending",
        "xdelayed xlag",
        "eval_ro xrange zcard",
        ("%R~STREAM", "%R~RELATED*"),
    ),
    "spark-log": Role(
        "Spark's source in log mode.",
        "xinfo|stream xrange multi exec hset",
        "xsplit xcounters command|info",
        "evalsha script|load",
        ("~STREAM", "~RELATED:hw:queries"),
    ),
    "spark-group": Role(
        "Spark's source in group mode, a member of a consumer group.",
        "@stream command|info multi exec watch get set del hget hmget hset hsetnx pexpire time",
        "",
        "@scripting exists type zadd zcard zrange zrangebyscore zrem zscore",
        ("~STREAM", "~RELATED*"),
    ),
    "spark-sink": Role(
        "Spark's sink, exactly once.",
        "xadd xrange xlen type multi exec watch unwatch hgetall hget hmget hset hdel expire persist del unlink evalsha "
        "script|load",
        "",
        "",
        ("~STREAM", "~RELATED:hw:*"),
    ),
    "spark-append": Role("Spark's sink, at least once.", "xadd", "", "", ("~STREAM",)),
    "replica": Role(
        "Follow a primary: masteruser and masterauth of its replicas.",
        "ping replconf",
        "hwsync",
        "psync",
        (),
    ),
    "sentinel": Role(
        "Watch, promote and redirect servers: auth-user and auth-pass of Sentinel.",
        "client|kill client|setname config|rewrite exec info multi ping publish role script|kill slaveof subscribe",
        "",
        "",
        (),
        "allchannels",
    ),
}
"""The kinds of users, by name."""


def rules(role: str, streams: Sequence[str], *, redis: bool = False) -> list[str]:
    """Return the rules of a role for ``streams`` (names or patterns), or for all keys if it is empty.

    >>> rules("spark-append", ["orders"])
    ['resetkeys', '~orders', 'resetchannels', '-@all', '+xadd']
    """
    found = ROLES[role]
    for stream in streams:
        if re.search(r"\s", stream):
            raise HeadwaterError(f"{stream!r} has white space: no rule can name it; use ? for it")
    keys = [
        key.replace("STREAM", stream).replace("RELATED", related_key(stream, ""))
        for stream in streams
        for key in found.keys
    ]
    if not streams and found.keys:
        keys = [found.keys[0].replace("STREAM", "*")]
    commands = f"{found.commands} {found.redis if redis else found.headwater}".split()
    return ["resetkeys", *keys, found.channels, "-@all", *(f"+{one}" for one in commands)]
