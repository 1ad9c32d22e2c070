"""The driver that a campaign kills: it follows a stream into a sink until it is asked to finish.

    python -m tests.spark.chaos.driver '{"url": …, "directory": …, "way": "parquet"}'

It writes one JSON object per line to standard output: ``up`` with the JVM's process id when its session has
started, ``failed`` when a query ended with an error and is restarted, ``done`` at its end. After a line on
its standard input, or the end of the input, it reads the remaining entries and exits.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from typing import Any

from headwater.spark.sessions import session
from tests.spark.chaos.driver_options import DriverOptions
from tests.spark.chaos.ways import WAYS

MOST_FAILURES = 200
"""Kills of its processes may end a query that often. More failures mean a persistent error."""


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main() -> None:
    options = DriverOptions.parse(sys.argv[1])
    quick = {"spark.sql.shuffle.partitions": "2"}
    spark = session(app="chaos", master=options.master, config=quick | options.conf)
    spark.sparkContext.setLogLevel("FATAL")
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    way = WAYS[options.way]
    if options.die_after is not None:
        way.die_between_sink_and_commit(options, jvm)
    finish = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        finish.set()

    threading.Thread(target=listen, daemon=True).start()
    say(up=jvm)
    for _ in range(MOST_FAILURES):
        try:
            if not finish.is_set():
                way.follow(spark, options, finish)
            way.follow(spark, options, None)
            break
        except Exception as error:
            if sys.exc_info()[0] is not None and not _alive(spark):
                raise
            say(failed=_cause(str(error))[:500])
    else:
        sys.exit(1)
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    failed = sum(executors.apply(number).failedTasks() for number in range(executors.size()))
    say(done=True, failed_tasks=failed)
    spark.stop()


def _cause(text: str) -> str:
    """Return the error of Headwater in a traceback that Spark passes on, or the whole text."""
    own: list[str] = re.findall(r"headwater\.errors\.\w+: .+", text)
    return own[-1] if own else text


def _alive(spark: Any) -> bool:
    """Return whether the JVM still answers."""
    try:
        spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    main()
