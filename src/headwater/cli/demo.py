"""``headwater demo``: the whole path on real data.

headwater demo
headwater demo --flights 10000 --keep
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.demo.data import FLIGHTS
from headwater.demo.run import LEAST_FLIGHTS, SEED, Order, run
from headwater.demo.telling import Teller


def demo(
    *,
    flights: Annotated[
        int,
        typer.Option(
            min=LEAST_FLIGHTS, max=FLIGHTS, metavar="N", help="How many, from the first of January."
        ),
    ] = FLIGHTS,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server, its data and the tables.")
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Which flights are spoiled, and how.")
    ] = SEED,
) -> None:
    """Run the whole path on 336,776 real flights.

    A server, a producer, three workers of which one is stopped and one is killed, Spark, a
    reconciliation of everything and a report. The exit status is 1 if a line of the reconciliation
    does not hold.
    """
    outcome = run(Order(flights, seed, keep), Teller())
    if not all(line.holds for line in outcome.lines):
        raise typer.Exit(1)
