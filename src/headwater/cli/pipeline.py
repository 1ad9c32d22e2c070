"""``headwater pipeline``: turn streams into tables.

headwater pipeline plan shop.toml
headwater pipeline run shop.toml
headwater pipeline status shop.toml
headwater pipeline quality shop.toml
headwater pipeline backfill shop.toml --table revenue --from 2026-11-23T00:00:00Z
headwater pipeline replay shop.toml --all
headwater pipeline repair shop.toml --table revenue --zone Asia/Kolkata
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any

import click

from headwater.cli.command import CommandGroup, Option, Positional, wrong
from headwater.cli.query import AllGroups
from headwater.cli.spark_noise import quiet_start
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.spark.pipeline import Made, Pipeline

app = CommandGroup()

File = Annotated[Path, Positional(help="The file that declares the pipeline.")]
Master = Annotated[str | None, Option(help="Spark's master. [default: the file's, or local[*]]")]
Set = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Override a value of the file; may be repeated."),
]
Verbose = Annotated[
    bool, Option("--verbose", "-v", help="Also show the lines that Spark prints while it starts.")
]
Json = Annotated[bool, Option("--json", help="Print JSON.")]


@app.add()
def plan(
    file: File,
    *,
    no_spark: Annotated[
        bool,
        Option(
            "--no-spark", help="Do not start Spark: SQL is not analysed, and no columns are shown."
        ),
    ] = False,
    master: Master = None,
    set_: Set = None,
    verbose: Verbose = False,
) -> None:
    """Show what a run would do: the tables in order, with their columns. No data is read.

    Spark analyses all SQL, and the servers report the number of entries of their streams. Urls are
    shown without credentials.
    """
    from headwater.cli.pipeline_text import plan_text

    declared = _load(file, set_)
    from headwater.spark.pipeline.plan import plan as make_plan

    with quiet_start(verbose=verbose):
        made = make_plan(declared, master=master, analyse=not no_spark)
    print(plan_text(made))


@app.add()
def run(
    file: File,
    *,
    once: Annotated[
        bool,
        Option("--once", help="Read the streams' current entries, then end; ignores [trigger]."),
    ] = False,
    metrics: Annotated[
        int | None,
        Option(min=0, max=65535, metavar="PORT", help="Serve metrics for Prometheus."),
    ] = None,
    metrics_host: Annotated[
        str, Option(metavar="HOST", help="The address that serves the metrics.")
    ] = "127.0.0.1",
    master: Master = None,
    set_: Set = None,
    verbose: Verbose = False,
) -> None:
    """Compute the tables of a pipeline from the entries of its streams.

    Tables of mode append and update continue from their checkpoints; tables of mode complete are
    computed again. The file is checked completely before Spark starts. With [trigger] interval the
    command runs until SIGTERM or Ctrl-C, which end it cleanly; a second signal ends it at once. On
    a terminal it shows progress as a table; otherwise it prints a line for each batch.
    """
    from headwater.spark.pipeline import Progress

    declared = _load(file, set_)
    progress = Progress()
    with ExitStack() as shown:
        stop = shown.enter_context(stop_on_signals())
        if metrics is not None:
            from headwater.spark.pipeline.metrics import served

            port = shown.enter_context(served(progress, port=metrics, host=metrics_host))
            print(f"metrics at http://{metrics_host}:{port}/metrics", flush=True)
        report: Callable[[str], None] = _print_line
        if sys.stdout.isatty():
            from headwater.cli.pipeline_text import live

            report = shown.enter_context(live(progress))
        from headwater.spark.pipeline import run as run_pipeline

        shown.enter_context(quiet_start(verbose=verbose))
        made = run_pipeline(
            declared, once=once, master=master, report=report, stop=stop, progress=progress
        )
    _print_made(made)
    if stop.is_set():
        print("stopped; the next run continues from here", flush=True)
        if once or declared.interval is None:
            raise click.exceptions.Exit(130)


@app.add()
def status(file: File, *, as_json: Json = False, set_: Set = None) -> None:
    """Show the state of the tables: batches, rows and lag. Does not start Spark.

    Lag is the number of unread entries, and the time since the oldest of them was added, in
    seconds.
    """
    from headwater.cli.pipeline_text import status_text

    declared = _load(file, set_)
    from headwater.spark.pipeline.status import status as find_status

    found = find_status(declared)
    print(json.dumps(found.as_json(), indent=2) if as_json else status_text(found))


@app.add()
def quality(
    file: File,
    *,
    table: Annotated[
        str | None, Option(metavar="NAME", help="Only this table. [default: all]")
    ] = None,
    last: Annotated[int, Option(min=1, help="Number of latest batches of each table.")] = 20,
    as_json: Json = False,
    set_: Set = None,
) -> None:
    """Show how many rows of each batch violated an expectation, and were dropped or quarantined.

    Covers streamed tables with expectations. Does not start Spark.
    """
    from headwater.cli.pipeline_text import quality_text

    declared = _load(file, set_)
    from headwater.spark.pipeline.status import quality as find_quality

    found = {name: batches[-last:] for name, batches in find_quality(declared, table).items()}
    if as_json:
        rows = {name: [one.as_json() for one in batches] for name, batches in found.items()}
        print(json.dumps(rows, indent=2))
    else:
        print(quality_text(found))


@app.add()
def backfill(
    file: File,
    *,
    table: Annotated[str, Option(metavar="NAME", help="The table, of mode append.")],
    start: Annotated[
        str,
        Option("--from", metavar="ID|TIME", help="The first entry: an id or a time."),
    ] = "earliest",
    end: Annotated[
        str | None,
        Option(
            "--to",
            metavar="ID|TIME",
            help="The last entry: an id, or a time before which it was added. [default: where the "
            "table begins]",
        ),
    ] = None,
    master: Master = None,
    set_: Set = None,
    verbose: Verbose = False,
) -> None:
    """Add entries that are older than the table's beginning to the table, through its SQL.

    The entries come from the stream, and from the archive if there is one. Repeating a backfill of
    the same range changes nothing. A range that overlaps with what the table has read is refused.
    """
    from headwater.cli.pipeline_text import backfill_text

    declared = _load(file, set_)
    from headwater.spark.pipeline.backfill import backfill as run_backfill

    with quiet_start(verbose=verbose):
        filled = run_backfill(declared, table, start=start, end=end, master=master)
    print(backfill_text(filled))


@app.add()
def repair(
    file: File,
    *,
    table: Annotated[str, Option(metavar="NAME", help="The table.")],
    zone: Annotated[
        str | None,
        Option(
            metavar="ZONE",
            help="The session's time zone when the table was written. [default: the file's zone]",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be changed.")] = False,
    set_: Set = None,
) -> None:
    """Correct the times by which a table is partitioned, if they were written in a session's time zone.

    Earlier versions wrote such times in spark.sql.session.timeZone without recording the zone, and
    readers take them for UTC. Repeating the command changes nothing. Does not start Spark.
    """
    from headwater.cli.pipeline_text import repaired_text

    declared = _load(file, set_)
    from headwater.spark.pipeline.table_sinks import TableSinks

    written = zone or declared.zone
    found = TableSinks(declared).repair_times(table, written, dry_run=dry_run)
    print(repaired_text(table, written, found, dry_run=dry_run))


@app.add()
def replay(
    file: File,
    *,
    dead: Annotated[
        bool, Option("--dead", help="Replay dead letters. Required; nothing else can be replayed.")
    ] = False,
    source: Annotated[
        str | None, Option(metavar="NAME", help="Only dead letters of this source of the file.")
    ] = None,
    ids: Annotated[
        list[str] | None,
        Option("--id", metavar="ID", help="The id of a dead letter; may be repeated."),
    ] = None,
    every: Annotated[bool, Option("--all", help="All dead letters.")] = False,
    all_groups: AllGroups = False,
    set_: Set = None,
) -> None:
    """Deliver the entries of dead letters to their groups again, and remove the dead letters."""
    if not dead:
        raise wrong("choose what to replay: --dead, with --all or --id")
    if bool(ids) == every:
        raise wrong("choose dead letters with --id, or all of them with --all")
    declared = _load(file, set_)
    from headwater.spark.pipeline.dead_letters import replay as replay_letters

    done = replay_letters(declared, source=source, ids=ids or (), all_groups=all_groups)
    for stream, count in done.items():
        print(f"{stream}: {count:,} replayed")
    if not done:
        print("no dead-letter stream exists")


def _load(file: Path, overrides: list[str] | None) -> Pipeline:
    try:
        import pyarrow as pa  # noqa: F401 - every declaration needs it
        import pyspark.sql.types  # noqa: F401 - every declaration needs it
    except ImportError as error:
        raise HeadwaterError(
            f"pipelines need Spark for Python ({error}): pip install 'headwater[spark]'"
        ) from error
    from headwater.spark.pipeline import load

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j also raises the errors that it logs
    return load(file, overrides=overrides or [])


def _print_line(line: str) -> None:
    print(line, flush=True)


def _print_made(made: list[Made]) -> None:
    for table in made:
        print(f"{table.table}: {table.rows:,} rows, {table.seconds:.1f} s", flush=True)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets. A second signal raises `KeyboardInterrupt`. The
    next run repairs what the interrupted run leaves unfinished.

    A thread sets the event. The signal handler must not set it: the signal may interrupt `threading.Event.wait`,
    which holds the lock that `set` needs. `SimpleQueue.put` may be called in a handler.
    """
    stop = threading.Event()
    signals: SimpleQueue[int | None] = SimpleQueue()
    requested = False

    def request_stop(number: int, _frame: Any) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        signals.put(number)

    def set_at_signal() -> None:
        if signals.get() is not None:
            stop.set()

    setting = threading.Thread(target=set_at_signal, name="stop at a signal", daemon=True)
    setting.start()
    previous = {
        number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signals.put(None)
        setting.join()
