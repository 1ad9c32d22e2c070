"""``headwater pipeline run FILE.toml``: streams into tables."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.main import SETTINGS

app = typer.Typer(**SETTINGS)


@app.callback()
def pipeline() -> None:
    """Turn streams into tables with Spark."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The pipeline's declaration.")],
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Take what the streams hold now and end, whatever [trigger] says."
        ),
    ] = False,
    master: Annotated[
        str | None, typer.Option(help="Spark's master; local[*] when the file names none.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Put a value over the file's, any number of times."
        ),
    ] = None,
) -> None:
    """Make a declaration's tables from what its streams hold.

    Tables of mode append go on from their checkpoints, tables of mode complete are made anew. The
    file is checked in full before Spark starts. With [trigger] interval it runs until SIGTERM
    or Ctrl-C, which end it cleanly.
    """
    from headwater.spark.pipeline import load

    declared = load(file, overrides=set_ or [])
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs is raised as well
    stop = _stop_on_signals()
    from headwater.spark.pipeline import run as run_pipeline

    made = run_pipeline(
        declared, once=once, master=master, report=lambda line: print(line, flush=True), stop=stop
    )
    for table in made:
        print(f"{table.table}: {table.rows:,} rows, {table.seconds:.1f} s", flush=True)
    if stop.is_set():
        print("stopped; the next run goes on from here", flush=True)
        if once or declared.interval is None:
            raise typer.Exit(130)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(_number: int, _frame: Any) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return stop
