"""The HELP of commands with subcommands, and the error that refers to it."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.commands.call import Call, shown
from headwater.commands.table import COMMANDS
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments

_SYNTAX = {
    "acl|cat": "[<category>]",
    "acl|deluser": "<username> [<username> ...]",
    "acl|dryrun": "<username> <command> [<arg> ...]",
    "acl|genpass": "[<bits>]",
    "acl|getuser": "<username>",
    "acl|log": "[<count> | RESET]",
    "acl|setuser": "<username> <attribute> [<attribute> ...]",
    "pubsub|channels": "[<pattern>]",
    "pubsub|numsub": "[<channel> ...]",
    "pubsub|shardchannels": "[<pattern>]",
    "pubsub|shardnumsub": "[<shardchannel> ...]",
    "client|kill": "<ip:port> | (ID <id> | ADDR <ip:port> | LADDR <ip:port> | TYPE <type> | "
    "USER <name> | MAXAGE <seconds> | SKIPME (YES|NO)) ...",
    "client|list": "[TYPE (NORMAL|MASTER|REPLICA|PUBSUB) | ID <id> ...]",
    "client|no-evict": "(ON|OFF)",
    "client|no-touch": "(ON|OFF)",
    "client|reply": "(ON|OFF|SKIP)",
    "client|setinfo": "(LIB-NAME|LIB-VER) <text>",
    "client|setname": "<name>",
    "client|unblock": "<id> [TIMEOUT|ERROR]",
    "config|get": "<pattern> ...",
    "config|set": "<directive> <value> ...",
    "slowlog|get": "[<count>]",
    "latency|graph": "<event>",
    "latency|history": "<event>",
    "latency|histogram": "[<command> ...]",
    "latency|reset": "[<event> ...]",
    "memory|usage": "<key> [SAMPLES <count>]",
    "command": "(no subcommand)",
    "command|docs": "[<command-name> ...]",
    "command|getkeys": "<full-command>",
    "command|getkeysandflags": "<full-command>",
    "command|info": "[<command-name> ...]",
    "command|list": "[FILTERBY (MODULE <name> | ACLCAT <category> | PATTERN <pattern>)]",
    "script|exists": "<sha1> [<sha1> ...]",
    "script|flush": "[ASYNC|SYNC]",
    "script|load": "<script>",
    "function|flush": "[ASYNC|SYNC]",
    "function|list": "[LIBRARYNAME <pattern>] [WITHCODE]",
}
"""Full name of a subcommand that takes arguments → its arguments; of a container that can be called without a
subcommand → the text for that call."""


def help_(call: Call) -> None:
    """Write each subcommand of the container that the request names, with its arguments and its summary."""
    command = COMMANDS[call.arguments.token(0)]
    lines = [f"{command.name.upper()} <subcommand> [<arg> ...]. Subcommands are:"]
    if command.name in _SYNTAX:
        lines += [_SYNTAX[command.name], f"    {command.summary}"]
    for name, sub in command.subcommands.items():
        lines += [f"{name.decode()} {_SYNTAX.get(sub.name, '')}".rstrip(), f"    {sub.summary}"]
    write_lines(call, lines)


def write_lines(call: Call, lines: Sequence[str]) -> None:
    """Write the lines of a HELP as an array of simple strings."""
    call.reply.array(len(lines))
    for line in lines:
        call.reply.simple(line.encode())


def wrong_arguments(arguments: Arguments) -> CommandError:
    """Return the error for a subcommand that is unknown or has a wrong number of arguments."""
    container = shown(arguments.token(0))
    word = shown(arguments.bytes(1)[:128])
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try {container} HELP."
    )
