"""``python -m tests.spark.exact_campaign``: reads random values of every type, codec, depth and mode, and compares each
with exact parsing in Python. Seeds continue after those of the run before, which campaigns/exact-values.jsonl has.

    python -m tests.spark.exact_campaign --values 20000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from random import Random

import msgspec

from headwater.errors import DecodeError
from tests import campaigns
from tests.spark.exact_values import MISFIT, TYPES, Exact, same, token_of
from tests.spark.replies import Fields, rows_of

CAMPAIGN = "exact-values"
ROWS = 40
"""In one page, so that values that fit are next to others."""

MODES = ("permissive", "failfast", "dropmalformed")


def differences(seed: int) -> tuple[int, list[str]]:
    """Read one page of each type in each codec. Return the number of values, and what differed."""
    random = Random(seed)
    trials, found = 0, []
    for exact in TYPES:
        texts = [exact.make(random) for _ in range(ROWS)]
        for codec in ("fields", "json", "msgpack", "faststream"):
            for mode in MODES:
                kept = [
                    text for text in texts if mode != "failfast" or exact.value(text) is not MISFIT
                ]
                count, wrong = _compared(exact, kept, codec, mode, random)
                trials += count
                found += [f"seed {seed}, {exact.type}, {codec}, {mode}: {each}" for each in wrong]
    return trials, found


def _compared(
    exact: Exact, texts: list[str], codec: str, mode: str, random: Random
) -> tuple[int, list[str]]:
    nested = f"struct<x: {exact.type}, a: array<{exact.type}>, m: map<string, {exact.type}>>"
    schema = f"n int, v {exact.type}, w {nested}, _rescued string"
    bodies = [_body(number, text, codec, random) for number, text in enumerate(texts)]
    if not bodies:
        return 0, []
    try:
        rows = {row["n"]: row for row in rows_of(schema, *bodies, codec=codec, mode=mode)}
    except DecodeError as error:
        return len(texts), [f"refused: {error}"]
    wrong = []
    for number, text in enumerate(texts):
        expected = exact.value(text)
        if mode == "dropmalformed" and expected is MISFIT:
            if number in rows:
                wrong.append(f"{text!r} was kept")
            continue
        row = rows[number]
        inner = row["w"]
        wrong += [
            f"{text!r} was read as {found!r}, not {expected!r}"
            for found in (row["v"], inner["x"], inner["a"][0], dict(inner["m"])["k"])
            if not same(found, expected)
        ]
        if (row["_rescued"] is None) != (expected is not MISFIT):
            wrong.append(f"{text!r}: _rescued is {row['_rescued']!r}")
    return 4 * len(texts), wrong


def _body(number: int, text: str, codec: str, random: Random) -> Fields:
    """Return an entry with a value at top level, in a struct, an array and a map."""
    token = token_of(random, text)
    inner = f'{{"x": {token}, "a": [{token}], "m": {{"k": {token}}}}}'
    if codec == "fields":
        return {b"n": b"%d" % number, b"v": text.encode(), b"w": inner.encode()}
    document = f'{{"n": {number}, "v": {token}, "w": {inner}}}'
    if codec == "msgpack":
        value = {"x": text, "a": [text], "m": {"k": text}}
        packed = msgspec.msgpack.encode({"n": number, "v": text, "w": value})
        return {b"data": packed}
    if codec == "faststream":
        return {b"__data__": json.dumps({"data": document, "headers": {}}).encode()}
    return {b"data": document.encode()}


def run(seeds: Iterable[int], values: int) -> campaigns.Outcome:
    """Run until ``values`` have been read."""
    began, trials = time.monotonic(), 0
    failures: list[str] = []
    used: list[int] = []
    for seed in seeds:
        count, found = differences(seed)
        used.append(seed)
        trials += count
        failures += found
        if trials >= values or len(failures) > 100:
            break
    span = (used[0], used[-1])
    return campaigns.Outcome("values", span, trials, "values", failures, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="repeat an earlier run, which is not recorded")
    given = parser.parse_args()
    first = given.seed or campaigns.next_seed(CAMPAIGN, "values")
    outcome = run(range(first, first + given.values), given.values)
    for failure in outcome.failures[:20]:
        print(failure)
    print(
        f"values: {outcome.trials} values, {len(outcome.failures)} failures, {outcome.seconds:.0f} s"
    )
    if given.seed is None:
        campaigns.record(CAMPAIGN, outcome)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
