"""Checks that must hold at the end of every trial."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import redis

from headwater.messages.dead import parse_dead_letter
from tests.worker.chaos import flow
from tests.worker.chaos.load import DEAD, Load

CONSUMERS: Final = [one for one in flow.app.consumers if one.stream.name == flow.orders.name]
TICKS: Final = "chaos.tick"

PAGE: Final = 5_000
SHOWN: Final = 10


class Found(NamedTuple):
    """What the store has: how often each message number occurs."""

    orders: Counter[int]
    results: dict[str, Counter[int]]
    """Results, by the consumer that published them."""
    dead: dict[str, Counter[int]]
    """Dead letters, by consumer."""
    errors: dict[int, str]
    """Errors of dead letters."""


def entries(client: redis.Redis, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """All entries of a stream."""
    found: list[Any] = []
    start = "-"
    while True:
        page: Any = client.xrange(stream, start, count=PAGE)
        found += page
        if len(page) < PAGE:
            return found
        start = f"({page[-1][0].decode()}"


def settled(client: redis.Redis) -> bool:
    """Whether every group has read all entries and none is pending."""
    groups: Any = client.xinfo_groups(flow.orders.name)
    return len(groups) == len(CONSUMERS) and all(
        group["pending"] == 0 and group["lag"] == 0 for group in groups
    )


def look(client: redis.Redis) -> Found:
    """Read everything that the trial left in the store."""
    dead: dict[str, Counter[int]] = {}
    errors: dict[int, str] = {}
    for consumer in CONSUMERS:
        numbers = dead[consumer.group] = Counter()
        for entry_id, fields in entries(client, consumer.dead):
            flat = [part for pair in fields.items() for part in pair]
            letter = parse_dead_letter(entry_id.decode(), flat)
            number = int(dict(letter.fields)[b"id"])
            numbers[number] += 1
            errors[number] = letter.error
    return Found(
        Counter(int(fields[b"id"]) for _id, fields in entries(client, flow.orders.name)),
        {
            consumer.group: Counter(
                int(fields[b"order"]) for _id, fields in entries(client, consumer.into.name)
            )
            for consumer in CONSUMERS
            if consumer.into is not None
        },
        dead,
        errors,
    )


def judge(client: redis.Redis, load: Load) -> list[str]:
    """Descriptions of failed checks."""
    found = look(client)
    wrong = []
    published = set(found.orders)
    expected_dead = {number for number in published if load.kinds[number] in DEAD}

    def must_be_empty(what: str, numbers: Any) -> None:
        listed = sorted(numbers)
        if listed:
            wrong.append(f"{len(listed)} {what}: {listed[:SHOWN]}")

    must_be_empty("messages were confirmed and are not in the stream", load.confirmed - published)
    for group, results in found.results.items():
        without_result = expected_dead if group == "bill" else set()
        must_be_empty(
            f"messages have no result of {group}", published - without_result - set(results)
        )
        must_be_empty(f"messages should have no result of {group}", without_result & set(results))
        must_be_empty(
            f"messages have two results of {group}", [n for n, c in results.items() if c > 1]
        )
    for group, letters in found.dead.items():
        expected = expected_dead if group == "bill" else set()
        letters_of = {f"{n} ({found.errors[n][:120]})" for n in set(letters) - expected}
        must_be_empty(f"messages are unexpected dead letters of {group}", letters_of)
        must_be_empty(f"messages are missing as dead letters of {group}", expected - set(letters))
        must_be_empty(
            f"messages have two dead letters of {group}", [n for n in letters if letters[n] > 1]
        )
    seconds = [
        int(str(entry_id, "ascii").partition("-")[0]) // 1000
        for entry_id, _ in entries(client, TICKS)
    ]
    if seconds != list(range(seconds[0], seconds[0] + len(seconds))):
        wrong.append(f"ticks are missing or there twice: {seconds}")
    for group in (consumer.group for consumer in CONSUMERS):
        infos: Any = client.xinfo_consumers(flow.orders.name, group)
        owners = [info["name"].decode() for info in infos if info["pending"]]
        must_be_empty(f"consumers of {group} own entries", owners)
    return wrong
