"""The raw loop that all results are ratios to: redis-py, COUNT 500, one XACK for all entries read.

``python -m benchmarks.worker.raw URL MESSAGES plain|into``. With ``into`` a batch is one pipelined MULTI of
an XADD for each message and one XACK. The loop decodes each message and calls a handler; it ignores
failures, leases and other consumers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import redis

from benchmarks.worker.tally import BATCH, GROUP, RESULTS, STREAM, Tally, body

FILL = 1_000


def fill(url: str, messages: int, *, first: int = 0, field: str = "data") -> None:
    """Add the messages."""
    with redis.Redis.from_url(url) as client:
        for start in range(first, first + messages, FILL):
            pipeline = client.pipeline(transaction=False)
            for number in range(start, min(start + FILL, first + messages)):
                pipeline.xadd(STREAM, {field: body(number)})
            pipeline.execute()


def work(url: str, tally: Tally, *, into: bool) -> None:
    """Read, handle and acknowledge until all messages are handled."""

    def handle(message: dict[str, Any]) -> dict[str, Any]:
        return {"order": message["id"]} if into else message

    with redis.Redis.from_url(url) as client:
        client.xgroup_create(STREAM, GROUP, "0")
        done = False
        while not done:
            read: Any = client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=BATCH, block=1_000)
            entries = read[0][1]
            results = [handle(json.loads(fields[b"data"])) for _entry_id, fields in entries]
            ids = [entry_id for entry_id, _fields in entries]
            if into:
                pipeline = client.pipeline(transaction=True)
                for result in results:
                    pipeline.xadd(RESULTS, {"data": json.dumps(result)})
                pipeline.xack(STREAM, GROUP, *ids)
                pipeline.execute()
            else:
                client.xack(STREAM, GROUP, *ids)
            done = tally.add(len(entries))


def main() -> None:
    """Add the messages, handle them, report."""
    url, messages, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    fill(url, messages)
    tally = Tally(messages)
    work(url, tally, into=kind == "into")
    tally.report()


if __name__ == "__main__":
    main()
