"""Scripts and functions.

Commands that need Lua require the extra ``lua``; without it they are unknown. SCRIPT FLUSH, SCRIPT HELP and
the FUNCTION commands do not need it.
"""

from __future__ import annotations

from headwater.commands.table.command import ALL, NODES, UNORDERED, Command, help_command

_EVAL = "noscript stale skip_monitor no_mandatory_keys"

# fmt: off
EVAL = Command(
    "eval", arity=-3, flags=f"may_replicate {_EVAL}", keys="RW access update 2#", group="scripting", since="2.6.0",
    summary="Runs a Lua script.",
    syntax="script numkeys:integer [key ...] [arg ...]",
    requires="lupa", run="server:eval.eval_",
)

EVALSHA = Command(
    "evalsha", arity=-3, flags=f"may_replicate {_EVAL}", keys="RW access update 2#", group="scripting", since="2.6.0",
    summary="Runs a cached Lua script by its SHA-1.",
    syntax="sha1 numkeys:integer [key ...] [arg ...]",
    requires="lupa", run="server:eval.eval_",
)

EVAL_RO = Command(
    "eval_ro", arity=-3, flags=f"readonly {_EVAL}", keys="RO access 2#", group="scripting",
    since="7.0.0",
    summary="Runs a Lua script that only reads.",
    syntax="script numkeys:integer [key ...] [arg ...]",
    requires="lupa", run="server:eval.eval_",
)

EVALSHA_RO = Command(
    "evalsha_ro", arity=-3, flags=f"readonly {_EVAL}", keys="RO access 2#", group="scripting",
    since="7.0.0",
    summary="Runs a cached Lua script that only reads, by its SHA-1.",
    syntax="sha1 numkeys:integer [key ...] [arg ...]",
    requires="lupa", run="server:eval.eval_",
)

SCRIPT = Command(
    "script", arity=-2, group="scripting", since="2.6.0",
    summary="Manages scripts.",
    subcommands=(
        Command(
            "script|flush", arity=-2, flags="noscript", group="scripting", since="2.6.0",
            summary="Empties the cache of scripts.",
            syntax="[ASYNC | SYNC]",
            acl="scripting", tips=NODES, run="server:script.script_flush",
        ),
        Command(
            "script|exists", arity=-3, flags="noscript", group="scripting", since="2.6.0",
            summary="Returns which scripts are cached, by their SHA-1.",
            syntax="sha1 [sha1 ...]",
            acl="scripting", tips="request_policy:all_shards response_policy:agg_logical_and",
            requires="lupa", run="server:script.script_exists",
        ),
        Command(
            "script|load", arity=3, flags="noscript stale", group="scripting", since="2.6.0",
            summary="Caches a script and returns its SHA-1.",
            syntax="script",
            acl="scripting", tips=NODES, requires="lupa", run="server:script.script_load",
        ),
        Command(
            "script|kill", arity=2, flags="noscript allow_busy", group="scripting", since="2.6.0",
            summary="Refused: no script is running. A script that runs too long is ended.",
            acl="scripting", tips="request_policy:all_shards response_policy:one_succeeded",
            requires="lupa", run="server:script.script_kill",
        ),
        help_command("script", group="scripting", since="5.0.0", acl="scripting"),
    ),
)

FUNCTION = Command(
    "function", arity=-2, group="scripting", since="7.0.0",
    summary="Manages functions.",
    subcommands=(
        Command(
            "function|flush", arity=-2, flags="write noscript", group="scripting", since="7.0.0",
            summary="Accepted without effect: there are no functions.",
            syntax="[ASYNC | SYNC]",
            acl="scripting", tips=ALL, run="server:function.function_flush",
        ),
        Command(
            "function|list", arity=-2, flags="noscript", group="scripting", since="7.0.0",
            summary="Lists the functions: none.",
            syntax="[LIBRARYNAME library-name-pattern] [WITHCODE]",
            acl="scripting", tips=UNORDERED, run="server:function.function_list",
        ),
        help_command("function", group="scripting", since="7.0.0", acl="scripting"),
    ),
)
# fmt: on
