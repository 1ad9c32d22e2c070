"""The command table equals that of Redis, for commands that Redis has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from headwater.commands.key_specs import FoundKey, KeyRange, find_keys
from headwater.commands.table import COMMANDS, Command, every_command
from headwater.resp.arguments import Arguments
from tests.peers import PEERS, Peer
from tools.foreign_commands import TARGET, module_text

OURS = {"xrenew", "xsettle", "xretire", "xsplit", "xlag", "xdelayed", "xcounters"}
NEWER_THAN_THE_PEER = {
    "xnack", "xcfgset", "xidmprecord", "msetex", "delex", "digest", "increx",
}  # fmt: skip


SHARED = {
    command.name: command
    for command in every_command()
    if command.name not in OURS and command.name not in NEWER_THAN_THE_PEER
}


def text(value: Any) -> Any:
    """Decode all bytes in nested sets, lists and dictionaries."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {text(key): text(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return {text(item) for item in value}
    return [text(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture
def real(shared_peer: Callable[[str], Peer]) -> Iterator[Any]:
    peer = shared_peer("redis-8.2")
    with redis.Redis(port=peer.port, protocol=3) as client:
        client.response_callbacks.clear()
        yield client


@pytest.mark.peer
@pytest.mark.parametrize("name", SHARED)
def test_a_declaration_agrees_with_redis(name: str, real: Any) -> None:
    command = SHARED[name]
    reply = text(real.execute_command("COMMAND INFO", name))[0]
    _, arity, flags, first, last, step, categories, tips, specs, _ = reply

    assert command.arity == arity
    assert set(command.shown_flags) == set(flags)
    assert {f"@{category}" for category in command.categories} == set(categories)
    assert set(command.tips) == set(tips)
    assert len(command.keys) == len(specs)
    for ours, theirs in zip(command.keys, specs, strict=True):
        assert set(ours.flags) == set(theirs["flags"])
        begin = theirs["begin_search"]["spec"]
        assert ours.begin == begin.get("index", begin.get("startfrom"))
        assert ours.keyword == begin.get("keyword", "")
        if ours.counted:
            found = {"keynumidx": 0, "firstkey": 1, "keystep": ours.step}
        else:
            found = {"lastkey": ours.last, "keystep": ours.step, "limit": ours.limit}
        assert theirs["find_keys"]["spec"] == found
    if command.keys and not command.movable_keys:
        assert (first, last, step) == KeyRange.over(command.keys)

    docs = text(real.execute_command("COMMAND DOCS", name))[name]
    assert (command.group, command.since) == (docs["group"], docs["since"])


@pytest.mark.parametrize("command", list(every_command()), ids=lambda command: command.name)
def test_a_declaration_is_complete(command: Command) -> None:
    assert command.name == command.name.lower()
    assert command.arity
    assert command.summary.endswith(".")
    assert {"fast", "slow"} & set(command.categories)
    for name, sub in command.subcommands.items():
        assert sub.name == f"{command.name}|{name.decode().lower()}"
        assert sub.arity_fits(max(2, abs(sub.arity)))
    if command.writes and not command.subcommands and command.group in {"stream", "string", "hash"}:
        assert command.keys


def keys(*words: str) -> list[str]:
    """Return the keys of a request, each with the first of its flags."""
    arguments = Arguments.of(*(word.encode() for word in words))
    command = COMMANDS[arguments.token(0)]
    if command.subcommands:
        command = command.subcommands[arguments.token(1)]
    found: list[FoundKey] = find_keys(arguments, command.keys, command.finder)
    return [f"{words[key.position]} {key.flags[0]}" for key in found]


REQUESTS = {
    "XADD s * a b": ["s RW"],
    "DEL a b c": ["a RM", "b RM", "c RM"],
    "MSET a 1 b 2": ["a OW", "b OW"],
    "RENAME a b": ["a RW", "b OW"],
    "COPY a b DB 1": ["a RO", "b OW"],
    "BLPOP a b 0": ["a RW", "b RW"],
    "OBJECT ENCODING a": ["a RO"],
    "XREAD COUNT 1 streams a b 0 0": ["a RO", "b RO"],
    "XREAD STREAMS a b 0": ["a RO"],
    "XREADGROUP GROUP g STREAMS STREAMS a >": ["a RO"],
    "XGROUP CREATE s g $": ["s RW"],
    "PING": [],
    "XSETTLE s g c ACK IDS 2 1-1 2-2": ["s RW"],
    "XSETTLE s g c FAIL DELAY 5 IDS 1 TO TO d MAXLEN 5 * FIELDS 1 TO x": ["s RW", "d RW"],
    "XSETTLE s g c ACK IDS 1 1-1 TO a * FIELDS 2 x TO y TO to b MINID ~ 1 * FIELDS 1 f v": [
        "s RW",
        "a RW",
        "b RW",
    ],
    "XSETTLE s g c ACK TO a * FIELDS 1 x y IDS 1 1-1": ["s RW", "a RW"],
    "XSETTLE s g c ACK IDS 99 1-1": ["s RW"],
    "XSETTLE s g c ACK IDS x TO": ["s RW"],
}


@pytest.mark.parametrize("request_line", REQUESTS)
def test_the_keys_of_a_request_are_found(request_line: str) -> None:
    assert keys(*request_line.split()) == REQUESTS[request_line]


@pytest.mark.peer
@pytest.mark.parametrize("request_line", [line for line in REQUESTS if "XSETTLE" not in line])
def test_redis_finds_the_same_keys(request_line: str, real: Any) -> None:
    words = request_line.split()
    if REQUESTS[request_line]:
        reply = text(real.execute_command("COMMAND GETKEYSANDFLAGS", *words))
        ours = [key.split()[0] for key in REQUESTS[request_line]]
        assert [key for key, _ in reply] == ours
    else:
        with pytest.raises(redis.ResponseError, match="The command has no key arguments"):
            real.execute_command("COMMAND GETKEYS", *words)


@pytest.mark.peer
def test_the_commands_that_only_other_servers_have_are_known(
    shared_peer: Callable[[str], Peer],
) -> None:
    # Given what COMMAND says on each server
    replies = []
    for name in PEERS:
        with redis.Redis(port=shared_peer(name).port, protocol=2) as client:
            client.response_callbacks.clear()
            replies.append(client.execute_command("COMMAND"))
    # Then the table from which ACL rules are read is up to date
    assert TARGET.read_text(encoding="utf-8") == module_text(replies)
