"""Scripts and functions. What empties them works without Lua too; the rest is there where the extra
``lua`` is installed, and unknown commands where it is not."""

from __future__ import annotations

from importlib.util import find_spec

from headwater.commands.table.rows import ALL, NODES, UNORDERED, CommandRow, help_row, row

# fmt: off
_EVAL = "noscript stale skip_monitor no_mandatory_keys"

_LUA_SUBCOMMANDS: tuple[CommandRow, ...] = (
    row("script|exists", -3, "noscript", "", "scripting", "2.6.0",
        "Tells which scripts are known, by their SHA-1.", acl="scripting",
        tips="request_policy:all_shards response_policy:agg_logical_and"),
    row("script|load", 3, "noscript stale", "", "scripting", "2.6.0",
        "Keeps a script and tells its SHA-1.", acl="scripting", tips=NODES),
    row("script|kill", 2, "noscript allow_busy", "", "scripting", "2.6.0",
        "Finds no script to end: one that runs too long ends by itself.", acl="scripting",
        tips="request_policy:all_shards response_policy:one_succeeded"),
)

_LUA: tuple[CommandRow, ...] = (
    row("eval", -3, _EVAL, "RW access update 2#", "scripting", "2.6.0", "Runs a Lua script."),
    row("evalsha", -3, _EVAL, "RW access update 2#", "scripting", "2.6.0",
        "Runs a Lua script that is known, by its SHA-1."),
    row("eval_ro", -3, f"readonly {_EVAL}", "RO access 2#", "scripting", "7.0.0",
        "Runs a Lua script that only reads."),
    row("evalsha_ro", -3, f"readonly {_EVAL}", "RO access 2#", "scripting", "7.0.0",
        "Runs a Lua script that is known and only reads, by its SHA-1."),
)

_HAS_LUA = find_spec("lupa") is not None

ROWS: tuple[CommandRow, ...] = (
    *(_LUA if _HAS_LUA else ()),
    row("script", -2, "", "", "scripting", "2.6.0", "Manages scripts.",
        row("script|flush", -2, "noscript", "", "scripting", "2.6.0", "Forgets every script.",
            acl="scripting", tips=NODES),
        *(_LUA_SUBCOMMANDS if _HAS_LUA else ()),
        help_row("script", "scripting", "5.0.0", acl="scripting"), acl=""),
    row("function", -2, "", "", "scripting", "7.0.0", "Manages functions.",
        row("function|flush", -2, "write noscript", "", "scripting", "7.0.0",
            "Forgets every function; there are none.", acl="scripting", tips=ALL),
        row("function|list", -2, "noscript", "", "scripting", "7.0.0",
            "Lists the functions: none.", acl="scripting", tips=UNORDERED),
        help_row("function", "scripting", "7.0.0", acl="scripting"), acl=""),
)
# fmt: on
