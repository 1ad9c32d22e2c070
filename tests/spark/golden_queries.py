"""Queries and a pipeline whose checkpoints, tables and store an earlier version wrote: tests/spark/golden/.

    python -m tests.spark.golden_queries DIRECTORY

writes them with the version that is installed. The names of the directories in golden/ are commits. Each has the
checkpoints and tables as files, and the store's keys in keys.json, as DUMP writes them.

The last batch of table ``bronze`` is written but not committed, as after a kill between the two, and the last batch
of the query to the stream ``copy`` is published in part.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import redis

FILE = """
[spark]
master = "local[2]"

[source.raw]
url = "${HW_TEST_URL}"
stream = "s"
schema = "id string, n bigint"
maxEntriesPerTrigger = 20

[source.many]
url = "${HW_TEST_URL}"
stream = "p.*"
schema = "stream string, id string, n bigint"

[source.shared]
url = "${HW_TEST_URL}"
stream = "o"
group = "g"
schema = "id string, n bigint"

[table.bronze]
mode = "append"
sql = "SELECT * FROM raw"
path = "tables/bronze"

[table.silver]
mode = "append"
sql = "SELECT n FROM bronze WHERE n % 2 = 0"
path = "tables/silver"

[table.patterns]
mode = "append"
sql = "SELECT stream, n FROM many"
path = "tables/patterns"

[table.orders]
mode = "append"
sql = "SELECT n FROM shared"
path = "tables/orders"

[table.out]
mode = "append"
sql = "SELECT n FROM raw"
sink = "stream"
url = "${HW_TEST_URL}"
stream = "out"
"""

SOURCES = ("s", "o", "p.1", "p.2", "p.3")


def fill(client: redis.Redis, first: int, last: int) -> None:
    """Add the entries ``first`` to ``last`` to each stream that the queries read."""
    pipeline = client.pipeline(transaction=False)
    for number in range(first, last + 1):
        body: Any = {"n": number}
        for stream in SOURCES:
            pipeline.xadd(stream, body, id=f"{number}-1")
    pipeline.execute()


def run_pipeline(directory: Path) -> None:
    """Run the pipeline in ``directory`` over the current entries."""
    from headwater.spark.pipeline import load, run

    (directory / "queries.toml").write_text(FILE)
    run(load(directory / "queries.toml"), once=True, report=lambda _line: None)


def copy(spark: Any, url: str, directory: Path) -> None:
    """Copy the stream ``s`` to ``copy`` with a query of Spark."""
    (
        spark.readStream.format("headwater")
        .options(url=url, stream="s")
        .schema("n bigint")
        .load()
        .writeStream.format("headwater")
        .options(url=url, stream="copy", checkpointLocation=str(directory / "copy"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def keys_of(client: redis.Redis) -> dict[str, str]:
    """Return all keys that do not expire, as DUMP writes them, in base64."""
    found: Any = client
    return {
        key.decode(): base64.b64encode(found.dump(key)).decode()
        for key in sorted(found.keys())
        if found.pttl(key) == -1
    }


def restore(client: redis.Redis, keys: dict[str, str]) -> None:
    """Make the keys that `keys_of` returned."""
    for key, payload in keys.items():
        client.restore(key, 0, base64.b64decode(payload))


def main(directory: Path) -> None:
    """Write a golden directory."""
    from headwater.spark import session
    from headwater.testing.server import server_process

    directory.mkdir(parents=True)
    spark = session(app="golden", master="local[2]")
    with server_process() as server, redis.Redis.from_url(server.url) as client:
        os.environ["HW_TEST_URL"] = server.url
        fill(client, 1, 30)
        run_pipeline(directory)
        copy(spark, server.url, directory)
        fill(client, 31, 50)
        run_pipeline(directory)
        _uncommit(directory / "tables/bronze/_headwater/checkpoint")
        before = keys_of(client)
        copy(spark, server.url, directory)
        _uncommit(directory / "copy")
        marker = next(iter(client.scan_iter("{copy}:hw:sink:*"))).decode()
        client.delete("copy", marker)
        restore(client, {key: before[key] for key in ("copy", marker)})
        _publish_in_part(client, server.url, marker.rpartition(":")[2])
        (directory / "keys.json").write_text(json.dumps(keys_of(client), indent=1) + "\n")
    spark.stop()


def _uncommit(checkpoint: Path) -> None:
    """Undo that Spark noted the end of the last batch."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()


def _publish_in_part(client: redis.Redis, url: str, query: str) -> None:
    """Write the entries 31 to 50 as batch 1 of ``query``, and be killed when some are in the stream."""
    from headwater.spark.sink import appending, chunks
    from tests.spark.stores import Shop
    from tests.spark.writes import Killed, Writing, killed_when, numbers

    chunks.CHUNK_ENTRIES = appending.FLUSH_ROWS = 7  # type: ignore[attr-defined, misc]
    writing = Writing(Shop("headwater", url, client), query=query, stream="copy")
    messages = writing.stage(numbers(12, 8, start=31))
    try:
        with killed_when(lambda: client.xlen("copy") > 30):
            writing.commit(messages, 1)
    except Killed:
        pass
    else:
        raise AssertionError("the batch was published whole")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
