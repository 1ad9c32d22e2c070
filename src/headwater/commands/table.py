"""Every command, as data: COMMAND, arity checks, ACL and the reference page are made from it.

A row names arity, flags, key specifications, group, first version and a summary, as Redis's own
rows do; rows of commands that Redis has are compared with a real server in
tests/conformance/test_protocol_table.py. ``since`` of our own verbs is Headwater's version.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.commands.key_specs import KeySpec

_IMPLIED = {
    "write": ("write",),
    "readonly": ("read",),
    "admin": ("admin", "dangerous"),
    "pubsub": ("pubsub",),
    "fast": ("fast",),
    "blocking": ("blocking",),
}


class CommandRow(NamedTuple):
    """What is known of a command before it runs.

    ``arity`` counts the name; below 0 it is a minimum. ``subcommands`` has a row for each of a
    container's, by upper-case name; of containers only COMMAND has a function of its own.
    """

    name: str
    arity: int
    flags: tuple[str, ...]
    keys: tuple[KeySpec, ...]
    group: str
    since: str
    summary: str
    categories: tuple[str, ...]
    tips: tuple[str, ...]
    finder: str
    subcommands: dict[bytes, CommandRow]

    @property
    def writes(self) -> bool:
        """Whether it may change a key."""
        return "write" in self.flags

    @property
    def movable_keys(self) -> bool:
        """Whether its keys cannot be told from first, last and step."""
        return bool(self.finder) or any(spec.keyword for spec in self.keys)

    def arity_fits(self, count: int) -> bool:
        """Whether a request of ``count`` arguments, its name included, can be this command."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity


def _row(
    name: str,
    arity: int,
    flags: str,
    keys: str,
    group: str,
    since: str,
    summary: str,
    *subcommands: CommandRow,
    acl: str | None = None,
    tips: str = "",
    finder: str = "",
) -> CommandRow:
    """A row; ``acl`` are the categories beside those that flags imply, by default the group's."""
    words = tuple(flags.split())
    categories = _GROUP_CATEGORY.get(group, "") if acl is None else acl
    implied = [category for flag in words for category in _IMPLIED.get(flag, ())]
    if "fast" not in words:
        implied.append("slow")
    return CommandRow(
        name=name,
        arity=arity,
        flags=words,
        keys=tuple(KeySpec.parse(spec) for spec in keys.split(", ") if spec),
        group=group,
        since=since,
        summary=summary,
        categories=tuple(dict.fromkeys([*implied, *categories.split()])),
        tips=tuple(tips.split()),
        finder=finder,
        subcommands={row.name.rpartition("|")[2].upper().encode(): row for row in subcommands},
    )


_GROUP_CATEGORY = {
    "stream": "stream",
    "generic": "keyspace",
    "string": "string",
    "hash": "hash",
    "transactions": "transaction",
    "connection": "connection",
}

_VARIES = "nondeterministic_output"
_UNORDERED = "nondeterministic_output_order"
_SUM = "request_policy:multi_shard response_policy:agg_sum"
_ALL = "request_policy:all_shards response_policy:all_succeeded"
_NODES = "request_policy:all_nodes response_policy:all_succeeded"
_ANY_STATE = "loading stale"
_SESSION = "noscript loading stale"
_TRANSACTION = "noscript loading stale fast allow_busy"
_LOGIN = "noscript loading stale fast no_auth allow_busy"
_ADMIN = "admin noscript loading stale"


def _help(container: str, group: str, since: str, acl: str | None = None) -> CommandRow:
    summary = f"Lists the subcommands of {container.upper()}."
    return _row(f"{container}|help", 2, _ANY_STATE, "", group, since, summary, acl=acl)


# fmt: off
_STREAMS = (
    _row("xadd", -5, "write denyoom fast", "RW update 1", "stream", "5.0.0",
         "Appends an entry; creates the stream when there is none.", tips=_VARIES),
    _row("xlen", 2, "readonly fast", "RO 1", "stream", "5.0.0", "Counts the entries."),
    _row("xrange", -4, "readonly", "RO access 1", "stream", "5.0.0",
         "Reads the entries between two ids."),
    _row("xrevrange", -4, "readonly", "RO access 1", "stream", "5.0.0",
         "Reads the entries between two ids, newest first."),
    _row("xdel", -3, "write fast", "RW delete 1", "stream", "5.0.0", "Deletes entries by id."),
    _row("xtrim", -4, "write", "RW delete 1", "stream", "5.0.0",
         "Deletes the oldest entries, down to a length or an id.", tips=_VARIES),
    _row("xsetid", -3, "write denyoom fast", "RW update 1", "stream", "5.0.0",
         "Sets the last id and the counters of a stream."),
    _row("xread", -4, "readonly blocking", "RO access STREAMS/1:-1:2", "stream", "5.0.0",
         "Reads what is newer than an id, from several streams; can wait for it."),
    _row("xreadgroup", -7, "write blocking", "RO access STREAMS/4:-1:2", "stream", "5.0.0",
         "Delivers entries to a consumer of a group: new, idle or its own; can wait for them."),
    _row("xack", -4, "write fast", "RW update 1", "stream", "5.0.0",
         "Ends deliveries: the entries are no longer pending in the group."),
    _row("xackdel", -6, "write fast", "RW update delete 1", "stream", "8.2.0",
         "Ends deliveries and deletes the entries."),
    _row("xnack", -7, "write fast", "RW update 1", "stream", "8.8.0",
         "Releases pending entries, so that any consumer can take them at once."),
    _row("xpending", -3, "readonly", "RO access 1", "stream", "5.0.0",
         "Shows what is delivered and not acknowledged.", tips=_VARIES),
    _row("xclaim", -6, "write fast", "RW update 1", "stream", "5.0.0",
         "Takes over pending entries by id, when idle long enough.", tips=_VARIES),
    _row("xautoclaim", -6, "write fast", "RW delete 1", "stream", "6.2.0",
         "Takes over idle pending entries by scanning for them.", tips=_VARIES),
    _row("xrenew", -7, "write fast", "RW update 1", "stream", "0.1.0",
         "Renews the lease on entries that the consumer still owns."),
    _row("xsettle", -8, "write denyoom", "RW update delete 1, RW update incomplete TO/5", "stream",
         "0.1.0", "Settles entries that the consumer still owns and appends their results.",
         tips=_VARIES, finder="xsettle"),
    _row("xretire", 4, "write fast", "RW delete 1", "stream", "0.1.0",
         "Removes a consumer that owns nothing."),
    _row("xsplit", 5, "readonly fast", "RO access 1", "stream", "0.1.0",
         "Counts the entries of a range and finds ids that cut it into equal parts."),
    _row("xgroup", -2, "", "", "stream", "5.0.0", "Manages consumer groups.",
         _row("xgroup|create", -5, "write denyoom", "RW insert 2", "stream", "5.0.0",
              "Creates a group."),
         _row("xgroup|createconsumer", 5, "write denyoom", "RW insert 2", "stream", "6.2.0",
              "Creates a consumer."),
         _row("xgroup|setid", -5, "write", "RW update 2", "stream", "5.0.0",
              "Sets the id up to which a group has been delivered."),
         _row("xgroup|delconsumer", 5, "write", "RW delete 2", "stream", "5.0.0",
              "Deletes a consumer and what it owns from the pending list."),
         _row("xgroup|destroy", 4, "write", "RW delete 2", "stream", "5.0.0", "Deletes a group."),
         _help("xgroup", "stream", "5.0.0"), acl=""),
    _row("xinfo", -2, "", "", "stream", "5.0.0", "Shows streams, groups and consumers.",
         _row("xinfo|groups", 3, "readonly", "RO access 2", "stream", "5.0.0",
              "Shows the groups of a stream."),
         _row("xinfo|consumers", 4, "readonly", "RO access 2", "stream", "5.0.0",
              "Shows the consumers of a group.", tips=_VARIES),
         _row("xinfo|stream", -3, "readonly", "RO access 2", "stream", "5.0.0",
              "Shows a stream, in full on demand."),
         _help("xinfo", "stream", "5.0.0"), acl=""),
)

_KEYS = (
    _row("del", -2, "write", "RM delete 1:-1", "generic", "1.0.0", "Deletes keys.", tips=_SUM),
    _row("unlink", -2, "write fast", "RM delete 1:-1", "generic", "4.0.0", "Deletes keys.",
         tips=_SUM),
    _row("exists", -2, "readonly fast", "RO 1:-1", "generic", "1.0.0",
         "Counts which of the keys exist.", tips=_SUM),
    _row("type", 2, "readonly fast", "RO 1", "generic", "1.0.0", "Names the type of a key."),
    _row("expire", -3, "write fast", "RW update 1", "generic", "1.0.0",
         "Lets a key expire after seconds."),
    _row("pexpire", -3, "write fast", "RW update 1", "generic", "2.6.0",
         "Lets a key expire after milliseconds."),
    _row("ttl", 2, "readonly fast", "RO access 1", "generic", "1.0.0",
         "Tells the seconds until a key expires.", tips=_VARIES),
    _row("pttl", 2, "readonly fast", "RO access 1", "generic", "2.6.0",
         "Tells the milliseconds until a key expires.", tips=_VARIES),
    _row("persist", 2, "write fast", "RW update 1", "generic", "2.2.0",
         "Takes a key's expiry away."),
    _row("keys", 2, "readonly", "", "generic", "1.0.0", "Lists the keys that match a pattern.",
         acl="keyspace dangerous", tips=f"request_policy:all_shards {_UNORDERED}"),
    _row("scan", -2, "readonly", "", "generic", "2.8.0", "Lists keys, a few in each call.",
         tips=f"{_VARIES} request_policy:special response_policy:special"),
    _row("dbsize", 1, "readonly fast", "", "server", "1.0.0", "Counts the keys of the database.",
         acl="keyspace", tips="request_policy:all_shards response_policy:agg_sum"),
    _row("flushdb", -1, "write", "", "server", "1.0.0", "Deletes all keys of the database.",
         acl="keyspace dangerous", tips=_ALL),
    _row("flushall", -1, "write", "", "server", "1.0.0", "Deletes all keys of all databases.",
         acl="keyspace dangerous", tips=_ALL),
    _row("set", -3, "write denyoom", "RW access update variable_flags 1", "string", "1.0.0",
         "Sets a key to a string."),
    _row("get", 2, "readonly fast", "RO access 1", "string", "1.0.0", "Reads a string."),
    _row("hset", -4, "write denyoom fast", "RW update 1", "hash", "2.0.0",
         "Sets fields of a hash."),
    _row("hsetnx", 4, "write denyoom fast", "RW insert 1", "hash", "2.0.0",
         "Sets a field of a hash that has no such field."),
    _row("hget", 3, "readonly fast", "RO access 1", "hash", "2.0.0", "Reads a field of a hash."),
    _row("hdel", -3, "write fast", "RW delete 1", "hash", "2.0.0", "Deletes fields of a hash."),
    _row("hgetall", 2, "readonly", "RO access 1", "hash", "2.0.0", "Reads a whole hash.",
         tips=_UNORDERED),
)

_TRANSACTIONS = (
    _row("multi", 1, _TRANSACTION, "", "transactions", "1.2.0",
         "Begins to queue commands instead of running them."),
    _row("exec", 1, "noscript loading stale skip_slowlog", "", "transactions", "1.2.0",
         "Runs the queued commands as one."),
    _row("discard", 1, _TRANSACTION, "", "transactions", "2.0.0", "Forgets the queued commands."),
    _row("watch", -2, _TRANSACTION, "RO 1:-1", "transactions", "2.2.0",
         "Makes EXEC fail when one of the keys has changed."),
    _row("unwatch", 1, _TRANSACTION, "", "transactions", "2.2.0", "Forgets all watched keys."),
)

_CONNECTIONS = (
    _row("hello", -1, _LOGIN, "", "connection", "6.0.0",
         "Chooses the protocol version; can authenticate and name the client."),
    _row("auth", -2, _LOGIN, "", "connection", "1.0.0", "Authenticates the client."),
    _row("select", 2, "loading stale fast", "", "connection", "1.0.0", "Chooses the database."),
    _row("ping", -1, "fast", "", "connection", "1.0.0", "Answers PONG, or its argument.",
         tips=_ALL),
    _row("echo", 2, "loading stale fast", "", "connection", "1.0.0", "Answers its argument."),
    _row("quit", -1, _LOGIN, "", "connection", "1.0.0", "Closes the connection."),
    _row("reset", 1, _LOGIN, "", "connection", "6.2.0",
         "Puts the connection back as it was when it was made."),
    _row("client", -2, "", "", "connection", "2.4.0", "Shows and manages clients.",
         _row("client|id", 2, _SESSION, "", "connection", "5.0.0", "Tells the client's own id."),
         _row("client|info", 2, _SESSION, "", "connection", "6.2.0", "Shows this client.",
              tips=_VARIES),
         _row("client|list", -2, _ADMIN, "", "connection", "2.4.0", "Shows the clients.",
              acl="connection", tips=_VARIES),
         _row("client|kill", -3, _ADMIN, "", "connection", "2.4.0", "Disconnects clients."),
         _row("client|unblock", -3, _ADMIN, "", "connection", "5.0.0",
              "Ends the waiting of a blocked client."),
         _row("client|getname", 2, _SESSION, "", "connection", "2.6.9",
              "Tells the client's own name."),
         _row("client|setname", 3, _SESSION, "", "connection", "2.6.9", "Names the client.",
              tips=_NODES),
         _row("client|setinfo", 4, _SESSION, "", "connection", "7.2.0",
              "Tells the server which library the client uses.", tips=_NODES),
         _row("client|reply", 3, _SESSION, "", "connection", "3.2.0",
              "Turns replies to the client off and on."),
         _row("client|no-evict", 3, _ADMIN, "", "connection", "7.0.0",
              "Keeps the client when memory for clients runs out."),
         _row("client|no-touch", 3, _SESSION, "", "connection", "7.2.0",
              "Keeps the client's reads from counting as use of a key."),
         _help("client", "connection", "5.0.0"), acl=""),
)

_SERVER = (
    _row("info", -1, _ANY_STATE, "", "server", "1.0.0", "Shows the state of the server.",
         acl="dangerous",
         tips=f"{_VARIES} request_policy:all_shards response_policy:special"),
    _row("command", -1, _ANY_STATE, "", "server", "2.8.13", "Shows what commands there are.",
         _row("command|count", 2, _ANY_STATE, "", "server", "2.8.13", "Counts the commands.",
              acl="connection"),
         _row("command|info", -2, _ANY_STATE, "", "server", "2.8.13",
              "Shows arity, flags and keys of commands.", acl="connection", tips=_UNORDERED),
         _row("command|docs", -2, _ANY_STATE, "", "server", "7.0.0",
              "Shows what commands are for.", acl="connection", tips=_UNORDERED),
         _row("command|list", -2, _ANY_STATE, "", "server", "7.0.0",
              "Lists the names of commands.", acl="connection", tips=_UNORDERED),
         _row("command|getkeys", -3, _ANY_STATE, "", "server", "2.8.13",
              "Finds the keys of a request.", acl="connection"),
         _row("command|getkeysandflags", -3, _ANY_STATE, "", "server", "7.0.0",
              "Finds the keys of a request and how they are used.", acl="connection"),
         _help("command", "server", "5.0.0", acl="connection"), acl="connection",
         tips=_UNORDERED),
    _row("config", -2, "", "", "server", "2.0.0", "Shows and changes settings.",
         _row("config|get", -3, _ADMIN, "", "server", "2.0.0", "Reads settings."),
         _row("config|set", -4, _ADMIN, "", "server", "2.0.0", "Changes settings.", tips=_NODES),
         _row("config|resetstat", 2, _ADMIN, "", "server", "2.0.0", "Resets the counters of INFO.",
              tips=_NODES),
         _row("config|rewrite", 2, _ADMIN, "", "server", "2.8.0",
              "Writes the settings in force to the configuration file.", tips=_NODES),
         _help("config", "server", "5.0.0"), acl=""),
    _row("time", 1, "loading stale fast", "", "server", "2.6.0", "Tells the server's time.",
         tips=_VARIES),
    _row("shutdown", -1, "admin noscript loading stale no_multi allow_busy", "", "server", "1.0.0",
         "Ends the server, with all that was acknowledged on disk."),
)
# fmt: on

COMMANDS: dict[bytes, CommandRow] = {
    row.name.upper().encode(): row
    for row in (*_STREAMS, *_KEYS, *_TRANSACTIONS, *_CONNECTIONS, *_SERVER)
}
"""Every command that this store knows, by upper-case name."""
