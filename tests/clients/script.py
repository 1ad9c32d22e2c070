"""What every client is asked to do, and what it must see: the same as on a real Redis.

A client is a `Client`: the verbs below through the client's own methods, whose results are taken as
they come. `play` writes down every result in one plain shape; `compare` plays on both servers and
wants the same story twice. Ids are the script's own, so that only times differ.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from tests.clients.stands import Stand, Where

HOUR_MS = 3_600_000
ENTRIES = {"1-1": {"item": "tea"}, "1-2": {"item": "cup", "n": "2"}, "2-1": {"item": "pot"}}
GROUP_FIELDS = {"name", "consumers", "pending", "last-delivered-id", "entries-read", "lag"}
"""Of XINFO GROUPS; later versions of Redis have more, and so has Headwater."""

REFUSED = {
    "add an id that is too small",
    "create it again",
    "read in no group",
    "add to another type",
}
"""The steps that may be errors, and then are the same."""

TRIES = 200
"""How often a client is asked again after its server was killed, 50 ms apart."""


class Client(Protocol):
    """The verbs of the script. Whatever a client gives back is what it is judged by."""

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
    async def spoil(self, key: str) -> Any: ...
    async def transaction(self, stream: str) -> Any: ...


Connect = Callable[[Where], AbstractAsyncContextManager[Client]]

Story = list[tuple[str, Any]]


async def compare(connect: Connect, headwater: Stand, measure: Stand, *, tls: bool = False) -> None:
    """The same story on both; ``tls`` is for Headwater alone, the measure has none."""
    here = await _play_on(headwater, headwater.secured if tls else headwater.where, connect)
    there = await _play_on(measure, measure.where, connect)
    for (step, seen), (_, expected) in zip(here, there, strict=True):
        assert seen == expected, step


async def _play_on(stand: Stand, where: Where, connect: Connect) -> Story:
    await asyncio.to_thread(stand.empty)
    async with connect(where) as client, connect(where) as other:
        return await play(client, other, stand)


async def play(client: Client, other: Client, stand: Stand) -> Story:
    """Connect, produce, read in a group, claim, acknowledge, wait."""
    story: Story = []

    async def step(name: str, doing: Any, shape: Callable[[Any], Any] = lambda seen: seen) -> None:
        try:
            story.append((name, shape(plain(await doing))))
        except Exception as error:
            if name not in REFUSED:
                raise
            story.append((name, f"{type(error).__name__}: {error}"))

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
    await step("claim what is young", client.autoclaim("s", "g", "c", HOUR_MS))
    await step("claim all", client.autoclaim("s", "g", "d", 0))
    await step("pending range after", client.pending_range("s", "g"), hide_times)
    await step("acknowledge", client.ack("s", "g", "1-1"))
    await step("acknowledge again", client.ack("s", "g", "1-1"))
    await step("groups", client.groups("s"), group_fields)
    waiting = asyncio.create_task(client.wait("s", "$", 60_000))
    await asyncio.to_thread(stand.wait_for_blocked)
    await step("add for who waits", other.add("s", "3-1", {"item": "jug"}))
    await step("who waited", waiting)
    await step("wait in vain", client.wait("s", "$", 1))
    await step("transaction", client.transaction("s"))
    await step("another type", client.spoil("text"))
    await step("add to another type", client.add("text", "1-1", {"a": "b"}))
    await step("still there", client.ping())
    return story


async def nack(connect: Connect, stand: Stand) -> None:
    """What one consumer hands back, another may claim at once. No real server here has XNACK."""
    await asyncio.to_thread(stand.empty)
    async with connect(stand.where) as client:
        await client.add("s", "1-1", {"item": "tea"})
        await client.create_group("s", "g")
        await client.read_group("s", "g", "a", 1)
        assert plain(await client.nack("s", "g", "1-1")) == 1
        assert "1-1" in str(plain(await client.autoclaim("s", "g", "b", HOUR_MS)))


async def comes_back(connect: Connect, stand: Stand) -> None:
    """A client whose server is killed and started again goes on by itself, and so do its data."""
    await asyncio.to_thread(stand.empty)
    async with connect(stand.where) as client:
        await client.add("s", "1-1", {"item": "tea"})
        await client.create_group("s", "g")
        await client.read_group("s", "g", "a", 1)
        await asyncio.to_thread(stand.restart)
        assert await _in_the_end(client) == 1
        assert plain(await client.ack("s", "g", "1-1")) == 1
        assert plain(await client.add("s", "2-1", {"item": "pot"})) == "2-1"
        assert "2-1" in str(plain(await client.read_group("s", "g", "a", 10)))


async def _in_the_end(client: Client) -> Any:
    """The length of the stream; a client may find out by an error that its connection is gone."""
    for _ in range(TRIES):
        try:
            return plain(await client.length("s"))
        except Exception:
            await asyncio.sleep(0.05)  # clients wait so themselves, and announce nothing
    return plain(await client.length("s"))


# --- one plain shape --------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """What any client gives back, as text, numbers, lists and mappings."""
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
    """An id that the server chose."""
    return re.sub(r"\d{13}-\d+", "<id>", value) if isinstance(value, str) else value


def hide_times(value: Any) -> Any:
    """Rows of XPENDING without the times: third in a row, or under a name of its own."""
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
    """Rows of XINFO GROUPS as mappings, with the fields that the measure knows as well."""
    rows = []
    for row in value:
        pairs = row.items() if isinstance(row, dict) else zip(row[::2], row[1::2], strict=True)
        rows.append({name: inner for name, inner in pairs if name in GROUP_FIELDS})
    return rows
