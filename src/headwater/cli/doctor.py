"""``headwater doctor``: check that workers on this machine can use a store.

headwater doctor --url redis://store:6379
"""

from __future__ import annotations

import time
from typing import Annotated

import click

from headwater.cli.command import Positional, watched
from headwater.cli.info import CORE, versions
from headwater.cli.output import UNHEALTHY, Output, OutputFormat, print_table, show
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.errors import HeadwaterError


@watched
def doctor(
    stream: Annotated[
        str, Positional(metavar="STREAM", help="The stream for which rights are checked.")
    ] = "orders",
    *,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Check that a store is fit for workers.

    Examines connection, version, clock, memory, durability, refused commands, the user's rights, and
    the packages installed here. The exit status is 3 if something is wrong, or unknown because the
    user may not query it. Changes nothing.
    """
    from headwater.client.redaction import redacted
    from headwater.operations.doctor import Examination, examine

    began = time.monotonic()
    try:
        found = query(url, examine(stream, clock=lambda: int(time.time() * 1000)))
    except HeadwaterError as error:
        found = [Examination("connection", good=False, text=str(error))]
    else:
        took = (time.monotonic() - began) * 1000
        text = f"{redacted(url)} answered all questions within {took:.0f} ms"
        found.insert(0, Examination("connection", good=True, text=text))
    found.append(Examination("installed", good=True, text=versions(CORE)))
    states = {True: "ok", False: "WRONG", None: "unknown"}
    rows = [(states[one.good], one.name, one.text) for one in found]
    show(found, output, lambda: print_table(("", "WHAT", "FOUND"), rows))
    if not all(one.good for one in found):
        raise click.exceptions.Exit(UNHEALTHY)
