"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

from headwater.commands.table.command import TRANSACTION, Command

# fmt: off
MULTI = Command(
    "multi", arity=1, flags=TRANSACTION, group="transactions", since="1.2.0",
    summary="Begins a transaction: the commands that follow are queued.",
    run="server:transactions.multi",
)

EXEC = Command(
    "exec", arity=1, flags="noscript loading stale skip_slowlog", group="transactions",
    since="1.2.0",
    summary="Runs the queued commands as one step.",
    run="server:transactions.exec_",
)

DISCARD = Command(
    "discard", arity=1, flags=TRANSACTION, group="transactions", since="2.0.0",
    summary="Discards the queued commands.",
    run="server:transactions.discard",
)

WATCH = Command(
    "watch", arity=-2, flags=TRANSACTION, keys="RO 1:-1", group="transactions", since="2.2.0",
    summary="Makes EXEC do nothing if one of the keys has changed.",
    syntax="key [key ...]",
    run="server:transactions.watch",
)

UNWATCH = Command(
    "unwatch", arity=1, flags=TRANSACTION, group="transactions", since="2.2.0",
    summary="Ends the watching of all keys.",
    run="server:transactions.unwatch",
)
# fmt: on
