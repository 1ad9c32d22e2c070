"""The command of a request does not depend on the client's earlier requests."""

from __future__ import annotations

import pytest

from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Reply, Simple

BEFORE = {
    "a subcommand": ("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"),
    "a command that has some": ("XGROUP", "HELP"),
    "a command": ("XLEN", "s"),
    "nothing": ("PING",),
}


def refused(reply: Reply, code: bytes) -> bool:
    return isinstance(reply, Failure) and reply.text.startswith(code)


@pytest.mark.parametrize("before", BEFORE)
def test_the_full_name_of_a_subcommand_is_not_a_command(before: str) -> None:
    client = LocalStore().client()
    client(*BEFORE[before])
    assert refused(client("XGROUP|CREATE", "x", "s", "g2", "$"), b"ERR unknown command")
    # And it aborts a transaction
    client(*BEFORE[before])
    client("MULTI")
    assert refused(client("XGROUP|CREATE", "x", "s", "g2", "$"), b"ERR unknown command")
    assert refused(client("EXEC"), b"EXECABORT")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", ["", "XLE", "XLENN", "xlen", "XLEN"])
def test_a_name_is_compared_as_a_whole(before: str, name: str) -> None:
    client = LocalStore().client()
    client(*BEFORE[before])
    known = name.upper() == "XLEN"
    assert (client(name, "nothing") == 0) == known
    client(*BEFORE[before])
    assert refused(client(name), b"ERR wrong number" if known else b"ERR unknown command")


def test_a_command_is_found_in_any_case() -> None:
    client = LocalStore().client()
    assert [client(name) for name in ("ping", "PING", "Ping", "ping")] == [Simple(b"PONG")] * 4
