"""From a request's name to the function that runs it.

Only what acts on keys is here; the server adds what acts on sessions and on the node. A subcommand's
function stands under its container's name and its own, ``XGROUP|CREATE``, as Redis names it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.commands import (
    addition,
    databases,
    delayed,
    deleting,
    dumping,
    entries,
    expiry,
    groups,
    idempotency,
    inspection,
    keys,
    lag,
    moving,
    objects,
    ownership,
    pending,
    reading,
    restoring,
    scanning,
    settling,
    trimming,
)
from headwater.commands.call import Call, Missing, Wait, shown
from headwater.commands.jobs import Job
from headwater.commands.table import COMMANDS, CommandRow
from headwater.commands.values import hashes, lists, sets, strings
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import is_part, word_at

Command = Callable[[Call], Wait | Missing | Job | None]

FUNCTIONS: dict[bytes, Command] = {
    b"XADD": addition.xadd,
    b"XREADGROUP": reading.xreadgroup,
    b"XACK": settling.xack,
    b"XSETTLE": settling.xsettle,
    b"XREAD": reading.xread,
    b"XRANGE": entries.xrange,
    b"XREVRANGE": entries.xrevrange,
    b"XLEN": entries.xlen,
    b"XDEL": entries.xdel,
    b"XTRIM": trimming.xtrim,
    b"XSETID": entries.xsetid,
    b"XCFGSET": idempotency.xcfgset,
    b"XIDMPRECORD": idempotency.xidmprecord,
    b"XSPLIT": entries.xsplit,
    b"XACKDEL": deleting.xackdel,
    b"XDELEX": deleting.xdelex,
    b"XNACK": settling.xnack,
    b"XCLAIM": ownership.xclaim,
    b"XAUTOCLAIM": ownership.xautoclaim,
    b"XPENDING": pending.xpending,
    b"XRENEW": settling.xrenew,
    b"XRETIRE": groups.xretire,
    b"XDELAYED": delayed.xdelayed,
    b"XLAG": lag.xlag,
    b"XGROUP|CREATE": groups.xgroup_create,
    b"XGROUP|SETID": groups.xgroup_setid,
    b"XGROUP|DESTROY": groups.xgroup_destroy,
    b"XGROUP|CREATECONSUMER": groups.xgroup_createconsumer,
    b"XGROUP|DELCONSUMER": groups.xgroup_delconsumer,
    b"XGROUP|HELP": groups.xgroup_help,
    b"XINFO|STREAM": inspection.xinfo_stream,
    b"XINFO|GROUPS": inspection.xinfo_groups,
    b"XINFO|CONSUMERS": inspection.xinfo_consumers,
    b"XINFO|HELP": inspection.xinfo_help,
    b"DEL": keys.delete,
    b"UNLINK": keys.delete,
    b"EXISTS": keys.exists,
    b"TOUCH": keys.touch,
    b"TYPE": keys.type_of,
    b"RENAME": moving.rename,
    b"RENAMENX": moving.renamenx,
    b"COPY": moving.copy,
    b"MOVE": moving.move,
    b"DUMP": dumping.dump,
    b"RESTORE": restoring.restore,
    b"DBSIZE": databases.dbsize,
    b"SWAPDB": databases.swapdb,
    b"FLUSHDB": databases.flushdb,
    b"FLUSHALL": databases.flushall,
    b"KEYS": scanning.keys,
    b"SCAN": scanning.scan,
    b"RANDOMKEY": scanning.randomkey,
    b"EXPIRE": expiry.expire,
    b"PEXPIRE": expiry.pexpire,
    b"EXPIREAT": expiry.expireat,
    b"PEXPIREAT": expiry.pexpireat,
    b"PERSIST": expiry.persist,
    b"TTL": expiry.ttl,
    b"PTTL": expiry.pttl,
    b"EXPIRETIME": expiry.expiretime,
    b"PEXPIRETIME": expiry.pexpiretime,
    b"OBJECT|ENCODING": objects.object_encoding,
    b"OBJECT|FREQ": objects.object_freq,
    b"OBJECT|IDLETIME": objects.object_idletime,
    b"OBJECT|REFCOUNT": objects.object_refcount,
    b"OBJECT|HELP": objects.object_help,
    b"SET": strings.set_string,
    b"GET": strings.get,
    b"GETDEL": strings.getdel,
    b"GETEX": strings.getex,
    b"SETEX": strings.setex,
    b"PSETEX": strings.psetex,
    b"SETNX": strings.setnx,
    b"MSET": strings.mset,
    b"MSETNX": strings.msetnx,
    b"MGET": strings.mget,
    b"APPEND": strings.append,
    b"STRLEN": strings.strlen,
    b"INCR": strings.incr,
    b"INCRBY": strings.incrby,
    b"DECR": strings.decr,
    b"DECRBY": strings.decrby,
    b"LPUSH": lists.lpush,
    b"RPUSH": lists.rpush,
    b"LRANGE": lists.lrange,
    b"LLEN": lists.llen,
    b"LPOP": lists.lpop,
    b"RPOP": lists.rpop,
    b"BLPOP": lists.blpop,
    b"BRPOP": lists.brpop,
    b"SADD": sets.sadd,
    b"SREM": sets.srem,
    b"SMEMBERS": sets.smembers,
    b"SISMEMBER": sets.sismember,
    b"SCARD": sets.scard,
    b"HSET": hashes.hset,
    b"HSETNX": hashes.hsetnx,
    b"HGET": hashes.hget,
    b"HMGET": hashes.hmget,
    b"HDEL": hashes.hdel,
    b"HGETALL": hashes.hgetall,
    b"HLEN": hashes.hlen,
    b"HEXISTS": hashes.hexists,
}

_SHOWN_BYTES = 128
"""How much of an unknown command's arguments its error repeats (Redis, commandCheckExistence)."""


class KnownCommand:
    """A command, or a subcommand, that a request can ask for.

    ``name`` is the key of its function: upper case, ``XGROUP|CREATE``. ``function`` is None for what
    acts on sessions and on the node. The rest is the row's, as numbers and flags of their own.
    """

    def __init__(self, name: bytes, row: CommandRow) -> None:
        self.name = name
        self.number = next(_numbers)
        """One of `KNOWN_COUNT`."""
        self.typed = name
        """How a client has spelled it, most likely."""
        self.row = row
        self.title = row.name
        self.function: Command | None = FUNCTIONS.get(name)
        self.arity = row.arity
        self.before_login = "no_auth" in row.flags
        self.never_queued = "no_multi" in row.flags
        """It may not be given within MULTI."""
        self.writes = row.writes
        self.on_keys = "readonly" in row.flags or "write" in row.flags
        self.alone = not row.subcommands and b"|" not in name
        """Its name is all that a client says to mean it."""
        self.subcommands: dict[bytes, KnownCommand] | None = None
        if row.subcommands:
            self.subcommands = {
                word: KnownCommand(name + b"|" + word, sub) for word, sub in row.subcommands.items()
            }

    def subcommand(self, arguments: Arguments) -> KnownCommand:
        """The subcommand that argument 1 names. Raises `CommandError`."""
        assert self.subcommands is not None
        found = self.subcommands.get(arguments.token(1))
        if found is None:
            typed = shown(arguments.bytes(1)[:_SHOWN_BYTES])
            raise CommandError(
                f"ERR unknown subcommand '{typed}'. Try {self.name.decode('latin-1')} HELP."
            )
        return found


_numbers = itertools.count()
_known = {name: KnownCommand(name, row) for name, row in COMMANDS.items()}
KNOWN_COUNT = next(_numbers)
"""How many commands and subcommands there are."""
_spelled: dict[bytes, KnownCommand] = {}
"""The same by names as clients spell them, in whatever case."""
_MOST_SPELLINGS = 1024


def find_command(arguments: Arguments) -> KnownCommand:
    """The command (or subcommand) that ``arguments`` ask for.

    Raises `CommandError` for an unknown name and for a wrong number of arguments, with Redis's texts.
    """
    return _checked(_named(arguments), arguments)


def find_like(last: KnownCommand, arguments: Arguments) -> KnownCommand:
    """The same for a client whose last command was ``last``: most send one again and again."""
    if last.alone and is_part(
        last.typed, arguments.buffer, word_at(arguments.starts, 0), word_at(arguments.ends, 0)
    ):
        return _checked(last, arguments)
    return find_command(arguments)


def _named(arguments: Arguments) -> KnownCommand:
    """The command of that name. Raises `CommandError`."""
    typed = arguments.bytes(0)
    found = _spelled.get(typed)
    if found is None:
        found = _known.get(typed.upper())
        if found is None:
            raise CommandError(_unknown(arguments))
        if len(_spelled) < _MOST_SPELLINGS:
            _spelled[typed] = found
            found.typed = typed
    return found


def _checked(found: KnownCommand, arguments: Arguments) -> KnownCommand:
    """The command, or its subcommand, with a number of arguments that fits."""
    count = arguments.count
    if found.subcommands is not None and count > 1:
        found = found.subcommand(arguments)
    if (found.arity > 0 and count != found.arity) or count < -found.arity:
        full = found.name.decode("latin-1").lower()
        raise CommandError(f"ERR wrong number of arguments for '{full}' command")
    return found


def find_row(arguments: Arguments) -> tuple[bytes, CommandRow]:
    """The name and the row of `find_command`."""
    found = find_command(arguments)
    return found.name, found.row


def _unknown(arguments: Arguments) -> str:
    repeated = ""
    for index in range(1, arguments.count):
        if len(repeated) >= _SHOWN_BYTES:
            break
        room = _SHOWN_BYTES - len(repeated)
        repeated += "'" + shown(arguments.bytes(index)[:room]) + "' "
    typed = shown(arguments.bytes(0)[:_SHOWN_BYTES])
    return f"ERR unknown command '{typed}', with args beginning with: {repeated}"
