"""Commands on the server as a whole: INFO, COMMAND, CONFIG, SLOWLOG, LATENCY, MEMORY and others."""

from __future__ import annotations

from headwater.commands.table.command import (
    ADMIN,
    ALL,
    ANY_STATE,
    NODES,
    UNORDERED,
    VARIES,
    Command,
    help_command,
)

_EVENTS = f"{VARIES} request_policy:all_nodes response_policy:special"
_FIGURES = f"{VARIES} request_policy:all_shards response_policy:special"

# fmt: off
INFO = Command(
    "info", arity=-1, flags=ANY_STATE, group="server", since="1.0.0",
    summary="Shows the state of the server.",
    syntax="[section [section ...]]",
    acl="dangerous", tips=f"{VARIES} request_policy:all_shards response_policy:special",
    run="server:info.info",
)

COMMAND = Command(
    "command", arity=-1, flags=ANY_STATE, group="server", since="2.8.13",
    summary="Shows the commands of the server.",
    acl="connection", tips=UNORDERED, run="server:command.command",
    subcommands=(
        Command(
            "command|count", arity=2, flags=ANY_STATE, group="server", since="2.8.13",
            summary="Counts the commands.",
            acl="connection", run="server:command.command_count",
        ),
        Command(
            "command|info", arity=-2, flags=ANY_STATE, group="server", since="2.8.13",
            summary="Shows arity, flags and keys of commands.",
            syntax="[command-name [command-name ...]]",
            acl="connection", tips=UNORDERED, run="server:command.command_info",
        ),
        Command(
            "command|docs", arity=-2, flags=ANY_STATE, group="server", since="7.0.0",
            summary="Shows the documentation of commands.",
            syntax="[command-name [command-name ...]]",
            acl="connection", tips=UNORDERED, run="server:command.command_docs",
        ),
        Command(
            "command|list", arity=-2, flags=ANY_STATE, group="server", since="7.0.0",
            summary="Lists the names of commands.",
            syntax="[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern:pattern>]",
            acl="connection", tips=UNORDERED, run="server:command.command_list",
        ),
        Command(
            "command|getkeys", arity=-3, flags=ANY_STATE, group="server", since="2.8.13",
            summary="Finds the keys of a request.",
            syntax="command [arg [arg ...]]",
            acl="connection", run="server:command.command_getkeys",
        ),
        Command(
            "command|getkeysandflags", arity=-3, flags=ANY_STATE, group="server", since="7.0.0",
            summary="Finds the keys of a request and how they are used.",
            syntax="command [arg [arg ...]]",
            acl="connection", run="server:command.command_getkeysandflags",
        ),
        help_command("command", group="server", since="5.0.0", acl="connection"),
    ),
)

CONFIG = Command(
    "config", arity=-2, group="server", since="2.0.0",
    summary="Shows and changes settings.",
    subcommands=(
        Command(
            "config|get", arity=-3, flags=ADMIN, group="server", since="2.0.0",
            summary="Reads settings.",
            syntax="parameter [parameter ...]",
            run="server:config.config_get",
        ),
        Command(
            "config|set", arity=-4, flags=ADMIN, group="server", since="2.0.0",
            summary="Changes settings.",
            syntax="parameter value [parameter value ...]",
            tips=NODES, run="server:config.config_set",
        ),
        Command(
            "config|resetstat", arity=2, flags=ADMIN, group="server", since="2.0.0",
            summary="Resets the counters of INFO.",
            tips=NODES, run="server:config.config_resetstat",
        ),
        Command(
            "config|rewrite", arity=2, flags=ADMIN, group="server", since="2.8.0",
            summary="Writes the settings to the configuration file.",
            tips=NODES, run="server:config.config_rewrite",
        ),
        help_command("config", group="server", since="5.0.0"),
    ),
)

MONITOR = Command(
    "monitor", arity=1, flags=ADMIN, group="server", since="1.0.0",
    summary="Shows every command as it runs, without passwords.",
    run="server:monitor.monitor",
)

SLOWLOG = Command(
    "slowlog", arity=-2, group="server", since="2.2.12",
    summary="Shows slow commands.",
    subcommands=(
        Command(
            "slowlog|get", arity=-2, flags="admin loading stale", group="server", since="2.2.12",
            summary="Shows the latest slow commands.",
            syntax="[count:integer]",
            tips=f"request_policy:all_nodes {VARIES}", run="server:slowlog.slowlog_get",
        ),
        Command(
            "slowlog|len", arity=2, flags="admin loading stale", group="server", since="2.2.12",
            summary="Counts the recorded slow commands.",
            tips=f"request_policy:all_nodes response_policy:agg_sum {VARIES}",
            run="server:slowlog.slowlog_len",
        ),
        Command(
            "slowlog|reset", arity=2, flags="admin loading stale", group="server", since="2.2.12",
            summary="Removes the recorded slow commands.",
            tips=NODES, run="server:slowlog.slowlog_reset",
        ),
        help_command("slowlog", group="server", since="6.2.0"),
    ),
)

LATENCY = Command(
    "latency", arity=-2, group="server", since="2.8.13",
    summary="Shows delays of the server.",
    subcommands=(
        Command(
            "latency|latest", arity=2, flags=ADMIN, group="server", since="2.8.13",
            summary="Shows the latest and the longest delay of each event.",
            tips=_EVENTS, run="server:latency.latency_latest",
        ),
        Command(
            "latency|history", arity=3, flags=ADMIN, group="server", since="2.8.13",
            summary="Shows the delays of an event, with their times.",
            syntax="event",
            tips=_EVENTS, run="server:latency.latency_history",
        ),
        Command(
            "latency|graph", arity=3, flags=ADMIN, group="server", since="2.8.13",
            summary="Draws the delays of an event.",
            syntax="event",
            tips=_EVENTS, run="server:latency.latency_graph",
        ),
        Command(
            "latency|doctor", arity=2, flags=ADMIN, group="server", since="2.8.13",
            summary="Describes the delays and what to do about them.",
            tips=_EVENTS, run="server:latency.latency_doctor",
        ),
        Command(
            "latency|histogram", arity=-2, flags=ADMIN, group="server", since="7.0.0",
            summary="Shows the durations of commands, in powers of two.",
            syntax="[command [command ...]]",
            tips=_EVENTS, run="server:latency.latency_histogram",
        ),
        Command(
            "latency|reset", arity=-2, flags=ADMIN, group="server", since="2.8.13",
            summary="Removes the recorded delays.",
            syntax="[event [event ...]]",
            tips="request_policy:all_nodes response_policy:agg_sum",
            run="server:latency.latency_reset",
        ),
        help_command("latency", group="server", since="2.8.13"),
    ),
)

MEMORY = Command(
    "memory", arity=-2, group="server", since="4.0.0",
    summary="Shows how memory is used.",
    subcommands=(
        Command(
            "memory|usage", arity=-3, flags="readonly", keys="RO 2", group="server", since="4.0.0",
            summary="Returns the bytes that a key and its value take.",
            syntax="key [SAMPLES count:integer]",
            run="server:memory.memory_usage",
        ),
        Command(
            "memory|stats", arity=2, group="server", since="4.0.0",
            summary="Shows what memory is used for.",
            tips=_FIGURES, run="server:memory.memory_stats",
        ),
        Command(
            "memory|doctor", arity=2, group="server", since="4.0.0",
            summary="Reports whether memory is a problem.",
            tips=_FIGURES, run="server:memory.memory_doctor",
        ),
        Command(
            "memory|purge", arity=2, group="server", since="4.0.0",
            summary="Returns free memory to the system.",
            tips=ALL, run="server:memory.memory_purge",
        ),
        Command(
            "memory|malloc-stats", arity=2, group="server", since="4.0.0",
            summary="Shows the statistics of the allocator, if it has any.",
            tips=_FIGURES, run="server:memory.memory_malloc_stats",
        ),
        help_command("memory", group="server", since="4.0.0"),
    ),
)

MODULE = Command(
    "module", arity=-2, group="server", since="4.0.0",
    summary="Shows modules; there are none.",
    subcommands=(
        Command(
            "module|list", arity=2, flags="admin noscript", group="server", since="4.0.0",
            summary="Lists the modules: none.",
            tips=UNORDERED, run="server:module.module_list",
        ),
        help_command("module", group="server", since="5.0.0"),
    ),
)

DEBUG = Command(
    "debug", arity=-2, flags=ADMIN, group="server", since="1.0.0",
    summary="Pauses the server, returns an error, or replays the journal, for tests.",
    syntax="subcommand [arg [arg ...]]",
    run="server:debug.debug",
)

TIME = Command(
    "time", arity=1, flags="loading stale fast", group="server", since="2.6.0",
    summary="Returns the server's time.",
    tips=VARIES, run="server:info.time",
)

SHUTDOWN = Command(
    "shutdown", arity=-1, flags="admin noscript loading stale no_multi allow_busy", group="server",
    since="1.0.0",
    summary="Stops the server, with every acknowledged write on disk.",
    syntax="[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
    run="server:shutdown.shutdown",
)
# fmt: on
