"""`Command`, the declaration of one command, and constants that several declarations use.

A declaration imports neither the engine nor the function of the command, so that clients can read the
table. ``run`` names the function:

    xclaim.xautoclaim             headwater.commands.xclaim, a command on keys
    server:slowlog.slowlog_get    headwater.server.commands.slowlog, a command on sessions and services

`headwater.commands.functions` resolves these names when the server starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

from headwater.commands.key_specs import KeySpec

_SERVER = "server:"

_IMPLIED = {
    "write": ("write",),
    "readonly": ("read",),
    "admin": ("admin", "dangerous"),
    "pubsub": ("pubsub",),
    "fast": ("fast",),
    "blocking": ("blocking",),
}
"""Flag → the ACL categories that it implies."""

_GROUP_CATEGORY = {
    "stream": "stream",
    "generic": "keyspace",
    "string": "string",
    "list": "list",
    "set": "set",
    "hash": "hash",
    "transactions": "transaction",
    "connection": "connection",
    "scripting": "scripting",
}

VARIES = "nondeterministic_output"
UNORDERED = "nondeterministic_output_order"
SUM = "request_policy:multi_shard response_policy:agg_sum"
ALL = "request_policy:all_shards response_policy:all_succeeded"
NODES = "request_policy:all_nodes response_policy:all_succeeded"
ANY_STATE = "loading stale"
SESSION = "noscript loading stale"
TRANSACTION = "noscript loading stale fast allow_busy"
LOGIN = "noscript loading stale fast no_auth allow_busy"
ADMIN = "admin noscript loading stale"


class Command:
    """One command or subcommand: its data for COMMAND, COMMAND DOCS, ACL and the reference page, and the
    name of its function.

    ``name`` is lower case; that of a subcommand includes its container's: ``xgroup|create``. ``arity`` includes
    the name; if negative, it is a minimum. ``flags`` and ``tips`` are separated by spaces, the specifications in
    ``keys`` by commas (`KeySpec.parse`). ``syntax`` is the part after the name (`headwater.commands.syntax`).
    ``acl`` names categories in addition to those that the flags imply; the default is the group's, none for a
    container without flags. ``finder`` names a function of `headwater.commands.key_specs`, for keys that
    specifications cannot describe. ``requires`` names a module without which the command is unknown. A container
    has ``subcommands``; COMMAND is the only container that also has a function.

    >>> get = Command("get", arity=2, flags="readonly fast", keys="RO access 1", group="string",
    ...     since="1.0.0", summary="Reads a string.", syntax="key", run="values.strings.get")
    >>> get.flags, get.categories, get.arity_fits(2)
    (('readonly', 'fast'), ('read', 'fast', 'string'), True)
    """

    def __init__(
        self,
        name: str,
        *,
        arity: int,
        group: str,
        since: str,
        summary: str,
        flags: str = "",
        keys: str = "",
        syntax: str = "",
        acl: str | None = None,
        tips: str = "",
        finder: str = "",
        requires: str = "",
        run: str = "",
        subcommands: Sequence[Command] = (),
    ) -> None:
        self.name = name
        self.arity = arity
        self.flags = tuple(flags.split())
        self.keys = tuple(KeySpec.parse(spec) for spec in keys.split(", ") if spec)
        self.group = group
        self.since = since
        self.summary = summary
        self.syntax = syntax
        if acl is None:
            acl = "" if subcommands and not flags else _GROUP_CATEGORY.get(group, "")
        self.categories = _categories(self.flags, acl.split())
        """ACL categories."""
        self.tips = tuple(tips.split())
        self.finder = finder
        self.requires = requires
        self.run = run
        self.subcommands = {
            sub.name.rpartition("|")[2].upper().encode(): sub
            for sub in subcommands
            if sub.available
        }
        """Subcommands by upper-case name, without the name of the container."""

    @property
    def available(self) -> bool:
        """True if the command requires no module, or its module is installed."""
        return not self.requires or _installed(self.requires)

    @property
    def on_session(self) -> bool:
        """True if the command acts on sessions and services, False if it acts on keys."""
        return self.run.startswith(_SERVER)

    @property
    def function_name(self) -> str:
        """``run`` without its prefix: a module, a dot, a function."""
        return self.run.removeprefix(_SERVER)

    @property
    def writes(self) -> bool:
        """True if the command may change a key."""
        return "write" in self.flags

    @property
    def may_change(self) -> bool:
        """True if the command may change a key or send a message. CLIENT PAUSE WRITE delays such commands, and
        read-only scripts may not call them."""
        return self.writes or "may_replicate" in self.flags

    @property
    def shown_flags(self) -> tuple[str, ...]:
        """The flags that COMMAND shows. As in Redis, ``may_replicate`` is not shown."""
        movable = ("movablekeys",) if self.movable_keys else ()
        return (*(flag for flag in self.flags if flag != "may_replicate"), *movable)

    @property
    def movable_keys(self) -> bool:
        """True if first, last and step do not suffice to find the keys."""
        flags_vary = any("variable_flags" in spec.flags for spec in self.keys)
        return (bool(self.finder) and not flags_vary) or any(
            spec.keyword or spec.counted for spec in self.keys
        )

    def arity_fits(self, count: int) -> bool:
        """Return whether a request of ``count`` arguments, its name included, can be this command."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity


def help_command(
    container: str, *, group: str, since: str, run: str = "help.help_", acl: str | None = None
) -> Command:
    """Return the declaration of a container's HELP."""
    return Command(
        f"{container}|help",
        arity=2,
        flags=ANY_STATE,
        group=group,
        since=since,
        summary=f"Lists the subcommands of {container.upper()}.",
        acl=acl,
        run=run,
    )


def _categories(flags: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """Return the ACL categories of a command: those that its flags imply, then ``own``."""
    implied = [category for flag in flags for category in _IMPLIED.get(flag, ())]
    if "scripting" in own:  # every command that a script calls is checked separately
        implied = [category for category in implied if category != "read"]
    if "fast" not in flags:
        implied.append("slow")
    return tuple(dict.fromkeys([*implied, *own]))


@cache
def _installed(module: str) -> bool:
    return find_spec(module) is not None
