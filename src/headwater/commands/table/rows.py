"""What a row of the command table says, and the words that rows share."""

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
        flags_vary = any("variable_flags" in spec.flags for spec in self.keys)
        return (bool(self.finder) and not flags_vary) or any(
            spec.keyword or spec.counted for spec in self.keys
        )

    def arity_fits(self, count: int) -> bool:
        """Whether a request of ``count`` arguments, its name included, can be this command."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity


def row(
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
    if "scripting" in categories.split():  # what a script reads is asked for command by command
        implied = [category for category in implied if category != "read"]
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
        subcommands={sub.name.rpartition("|")[2].upper().encode(): sub for sub in subcommands},
    )


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


def help_row(container: str, group: str, since: str, acl: str | None = None) -> CommandRow:
    summary = f"Lists the subcommands of {container.upper()}."
    return row(f"{container}|help", 2, ANY_STATE, "", group, since, summary, acl=acl)
