"""``headwater demo``: run a server, workers and Spark on real data.

headwater demo --flights 10000
headwater demo --flights 10000 --keep
"""

from __future__ import annotations

from typing import Annotated

import click

from headwater.cli.command import Option
from headwater.demo.console import DemoConsole
from headwater.demo.data import FLIGHTS
from headwater.demo.run import LEAST_FLIGHTS, SEED, run


def demo(
    *,
    flights: Annotated[
        int,
        Option(
            min=LEAST_FLIGHTS,
            max=FLIGHTS,
            metavar="N",
            help="Number of flights, beginning with those of 1 January.",
        ),
    ] = FLIGHTS,
    keep: Annotated[
        bool, Option("--keep", help="Keep the server running, with its data and tables.")
    ] = False,
    seed: Annotated[
        int, Option(metavar="N", help="Seed that selects the corrupted flights and their damage.")
    ] = SEED,
) -> None:
    """Run a server, workers and Spark on 336,776 real flights.

    Runs a server, a producer, three workers (one is stopped and one is killed) and Spark. Then counts
    everything again and writes a report. The exit status is 1 if a line of this reconciliation does
    not hold.
    """
    outcome = run(DemoConsole(), flights=flights, seed=seed, keep=keep)
    if not all(line.holds for line in outcome.lines):
        raise click.exceptions.Exit(1)
