"""The script that every client runs, and whose results must be the same as on a real Redis.

A `Client` implements the operations below with the client's own methods and returns their results
unchanged. `play` records every result in one plain form. `compare` runs the script on both servers and
compares the transcripts. The script chooses the ids, so only times differ.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from tests.clients.servers import ServerAddress, SharedServer

HOUR_MS = 3_600_000
ENTRIES = {"1-1": {"item": "tea"}, "1-2": {"item": "cup", "n": "2"}, "2-1": {"item": "pot"}}
GROUP_FIELDS = {"name", "consumers", "pending", "last-delivered-id", "entries-read", "lag"}
"""The compared fields of XINFO GROUPS; later versions of Redis have more, and so has Headwater."""

REFUSED = {
    "add an id that is too small",
    "create it again",
    "read in no group",
    "add to another type",
}
"""The steps that may raise errors, which are compared too."""

TRIES = 200
"""How often a command is repeated after the server was killed, every 50 ms."""


class Client(Protocol):
    """The operations of the script; their results are compared."""

    async def ping(self) -> Any: ...
    async def add(self, stream: str, entry_id: str, fields: dict[str, str]) -> Any: ...
    async def length(self, stream: str) -> Any: ...
    async def entries(self, stream: str) -> Any: ...
    async def create_group(self, stream: str, group: str) -> Any: ...
    async def read_group(self, stream: str, group: str, consumer: str, count: int) -> Any: ...
    async def pending(self, stream: str, group: str) -> Any: ...
    async def pending_range(self, stream: str, group: str) -> Any: ...
    async def claim(self, stream: str, group: str, consumer: str, entry_id: str) -> Any: ...
    async def autoclaim(self, stream: str, group: str, consumer: str, idle_ms: int) -> Any: ...
    async def ack(self, stream: str, group: str, entry_id: str) -> Any: ...
    async def nack(self, stream: str, group: str, entry_id: str) -> Any: ...
    async def groups(self, stream: str) -> Any: ...
    async def wait(self, stream: str, last_id: str, block_ms: int) -> Any: ...
    async def set_text(self, key: str) -> Any: ...
    async def transaction(self, stream: str) -> Any: ...


Connect = Callable[[ServerAddress], AbstractAsyncContextManager[Client]]

Transcript = list[tuple[str, Any]]


async def compare(
    connect: Connect, headwater: SharedServer, reference: SharedServer, *, tls: bool = False
) -> None:
    """Run the script on both servers and compare. ``tls`` applies to Headwater only: the reference has no
    TLS."""
    here = await _play_on(headwater, headwater.tls_address if tls else headwater.address, connect)
    there = await _play_on(reference, reference.address, connect)
    for (step, seen), (_, expected) in zip(here, there, strict=True):
        assert seen == expected, step


async def _play_on(server: SharedServer, address: ServerAddress, connect: Connect) -> Transcript:
    await asyncio.to_thread(server.empty)
    async with connect(address) as client, connect(address) as other:
        return await play(client, other, server)


async def play(client: Client, other: Client, server: SharedServer) -> Transcript:
    """Run the script: connect, produce, read in a group, claim, acknowledge, wait."""
    transcript: Transcript = []

    async def step(name: str, doing: Any, shape: Callable[[Any], Any] = lambda seen: seen) -> None:
        try:
            transcript.append((name, shape(plain(await doing))))
        except Exception as error:
            if name not in REFUSED:
                raise
            transcript.append((name, f"{type(error).__name__}: {error}"))

    await step("ping", client.ping())
    for entry_id, fields in ENTRIES.items():
        await step(f"add {entry_id}", client.add("s", entry_id, fields))
    await step("add an id that is too small", client.add("s", "1-1", {"item": "late"}))
    await step("add to another", client.add("t", "*", {"n": "1"}), hide_ids)
    await step("length", client.length("s"))
    await step("entries", client.entries("s"))
    await step("create a group", client.create_group("s", "g"))
    await step("create it again", client.create_group("s", "g"))
    await step("read new", client.read_group("s", "g", "a", 2))
    await step("read the rest", client.read_group("s", "g", "b", 10))
    await step("read nothing", client.read_group("s", "g", "b", 10))
    await step("read in no group", client.read_group("s", "nobody", "b", 10))
    await step("pending", client.pending("s", "g"))
    await step("pending range", client.pending_range("s", "g"), hide_times)
    await step("claim", client.claim("s", "g", "c", "1-1"))
    await step("claim with a long idle time", client.autoclaim("s", "g", "c", HOUR_MS))
    await step("claim all", client.autoclaim("s", "g", "d", 0))
    await step("pending range after", client.pending_range("s", "g"), hide_times)
    await step("acknowledge", client.ack("s", "g", "1-1"))
    await step("acknowledge again", client.ack("s", "g", "1-1"))
    await step("groups", client.groups("s"), group_fields)
    waiting = asyncio.create_task(client.wait("s", "$", 60_000))
    await asyncio.to_thread(server.wait_for_blocked)
    await step("add for the blocked client", other.add("s", "3-1", {"item": "jug"}))
    await step("the blocked client", waiting)
    await step("wait until the timeout", client.wait("s", "$", 1))
    await step("transaction", client.transaction("s"))
    await step("another type", client.set_text("text"))
    await step("add to another type", client.add("text", "1-1", {"a": "b"}))
    await step("still there", client.ping())
    return transcript


async def nack(connect: Connect, server: SharedServer) -> None:
    """Check that an entry that one consumer releases can be claimed by another at once. No real server here
    has XNACK."""
    await asyncio.to_thread(server.empty)
    async with connect(server.address) as client:
        await client.add("s", "1-1", {"item": "tea"})
        await client.create_group("s", "g")
        await client.read_group("s", "g", "a", 1)
        assert plain(await client.nack("s", "g", "1-1")) == 1
        assert "1-1" in str(plain(await client.autoclaim("s", "g", "b", HOUR_MS)))


async def reconnects(connect: Connect, server: SharedServer) -> None:
    """Check that a client continues after its server was killed and restarted, and that the data are there."""
    await asyncio.to_thread(server.empty)
    async with connect(server.address) as client:
        await client.add("s", "1-1", {"item": "tea"})
        await client.create_group("s", "g")
        await client.read_group("s", "g", "a", 1)
        await asyncio.to_thread(server.restart)
        assert await _in_the_end(client) == 1
        assert plain(await client.ack("s", "g", "1-1")) == 1
        assert plain(await client.add("s", "2-1", {"item": "pot"})) == "2-1"
        assert "2-1" in str(plain(await client.read_group("s", "g", "a", 10)))


async def _in_the_end(client: Client) -> Any:
    """Return the length of the stream. A client's first commands may fail because its connection is closed."""
    for _ in range(TRIES):
        try:
            return plain(await client.length("s"))
        except Exception:
            await asyncio.sleep(0.05)  # clients reconnect without a notification
    return plain(await client.length("s"))


# --- one plain form ---------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a client's result as strings, numbers, lists and mappings."""
    if isinstance(value, bytes | bytearray):
        return value.decode()
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"{type(value).__name__} {value}"


def hide_ids(value: Any) -> Any:
    """Replace ids that the server chose."""
    return re.sub(r"\d{13}-\d+", "<id>", value) if isinstance(value, str) else value


def hide_times(value: Any) -> Any:
    """Replace the times in rows of XPENDING: the third item of a row, or named fields."""
    if isinstance(value, dict):
        return {
            name: "<ms>" if re.search("idle|since|milli|elapsed", name, re.IGNORECASE) else hidden
            for name, hidden in ((name, hide_times(inner)) for name, inner in value.items())
        }
    if isinstance(value, list):
        if len(value) == 4 and isinstance(value[0], str):
            return [*value[:2], "<ms>", value[3]]
        return [hide_times(inner) for inner in value]
    return value


def group_fields(value: Any) -> Any:
    """Return rows of XINFO GROUPS as mappings, with only the fields that the reference has too."""
    rows = []
    for row in value:
        pairs = row.items() if isinstance(row, dict) else zip(row[::2], row[1::2], strict=True)
        rows.append({name: inner for name, inner in pairs if name in GROUP_FIELDS})
    return rows
