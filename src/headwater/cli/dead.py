"""``headwater dead``: look at dead letters, replay them, drop them.

headwater dead list orders
headwater dead replay orders 1526569498055-0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.main import SETTINGS
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.groups.operation import Operation
    from headwater.messages import DeadLetter

app = typer.Typer(no_args_is_help=True, **SETTINGS)

StreamName = Annotated[
    str, typer.Argument(metavar="STREAM", help="The stream whose dead letters are meant.")
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Ids of dead letters.")]
All = Annotated[bool, typer.Option("--all", help="Every dead letter there is.")]
Url = Annotated[
    str,
    typer.Option(envvar="HEADWATER_URL", metavar="URL", help="Address of the store."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="KEY", help="The dead-letter stream. [default: {STREAM}.dead]"),
]

DEFAULT_URL = "redis://localhost:6379"


@app.callback()
def dead() -> None:
    """Look at dead letters, replay them, drop them."""


@app.command("list")
def list_letters(
    stream: StreamName,
    *,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 100,
    after: Annotated[str, typer.Option(metavar="ID", help="Only those behind this one.")] = "",
    source: From = None,
    url: Url = DEFAULT_URL,
) -> None:
    """List dead letters, oldest first: id, time, deliveries, entry and error."""
    from headwater.groups.dead_letters import page

    for letter in _do(url, page(_source(stream, source), after=after, count=count)):
        what = f"{letter.stream} {letter.entry_id} in group {letter.group}"
        error = letter.error.replace("\n", " ")
        print(f"{letter.id}  {letter.at}  {letter.deliveries}x  {what}  {error}")


@app.command()
def show(
    stream: StreamName, ids: Ids = None, *, source: From = None, url: Url = DEFAULT_URL
) -> None:
    """Show dead letters in full: fields, error, where it happened."""
    from headwater.groups.dead_letters import find

    for letter in _do(url, find(_source(stream, source), _some(ids))):
        _print(letter)


@app.command()
def replay(
    stream: StreamName,
    ids: Ids = None,
    *,
    every: All = False,
    source: From = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Add the entries again to the streams they came from, and remove their records."""
    from headwater.groups.dead_letters import find
    from headwater.groups.dead_letters import replay as again

    where = _source(stream, source)
    if not every:
        letters = _do(url, find(where, _some(ids)))
        for letter, entry_id in zip(letters, _do(url, again(where, letters)), strict=True):
            print(f"{letter.id} is {letter.stream} {entry_id}")
        return
    for letters in _pages(url, where, ids):
        for letter, entry_id in zip(letters, _do(url, again(where, letters)), strict=True):
            print(f"{letter.id} is {letter.stream} {entry_id}")


@app.command()
def drop(
    stream: StreamName,
    ids: Ids = None,
    *,
    every: All = False,
    source: From = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Remove dead letters for good."""
    from headwater.groups.dead_letters import drop as remove

    where = _source(stream, source)
    if not every:
        print(f"{_do(url, remove(where, _some(ids)))} dropped")
        return
    dropped = 0
    for letters in _pages(url, where, ids):
        dropped += _do(url, remove(where, [letter.id for letter in letters]))
    print(f"{dropped} dropped")


def _source(stream: str, source: str | None) -> str:
    from headwater.messages import dead_letter_stream

    return source or dead_letter_stream(stream)


def _some(ids: list[str] | None) -> list[str]:
    if not ids:
        raise HeadwaterError("name at least one dead letter; `headwater dead list` shows their ids")
    return ids


def _pages(url: str, where: str, ids: list[str] | None) -> Any:
    """All records that are there now, a page at a time, each page read once."""
    from headwater.groups.dead_letters import page

    if ids:
        raise HeadwaterError("--all and ids contradict each other")
    after = ""
    last = _do(url, _newest(where))
    while letters := _do(url, page(where, after=after)):
        wanted = [letter for letter in letters if _order(letter.id) <= _order(last)]
        if wanted:
            yield wanted
        if len(wanted) < len(letters):
            return
        after = letters[-1].id


def _order(entry_id: str) -> tuple[int, int]:
    ms, _dash, seq = entry_id.partition("-")
    return int(ms), int(seq)


def _newest(where: str) -> Operation[str]:
    """The id of the newest record: what is replayed and dies again meanwhile is not taken again."""
    from headwater.groups.operation import accepted

    replies = yield [["XREVRANGE", where, "+", "-", "COUNT", 1]]
    entries = accepted(replies[0])
    return entries[0][0].decode() if entries else "0-0"


def _do(url: str, operation: Operation[Any]) -> Any:
    from headwater.client.redaction import redacted
    from headwater.groups.operation import run
    from headwater.worker.connections import Connections, lost_connection

    client = Connections(url).synchronous()
    try:
        return run(client, operation)
    except lost_connection() as error:
        raise HeadwaterError(f"{redacted(url)} cannot be reached: {error}") from error
    finally:
        client.close()


def _print(letter: DeadLetter) -> None:
    print(f"{letter.id}")
    print(f"  entry       {letter.stream} {letter.entry_id}")
    print(f"  group       {letter.group}, consumer {letter.consumer}")
    print(f"  deliveries  {letter.deliveries}")
    print(f"  died at     {letter.at}")
    print(f"  error       {letter.error}")
    for line in letter.trace.splitlines():
        print(f"    {line}")
    for name, value in letter.fields:
        shown = value.decode("utf-8", "backslashreplace")
        print(f"  {name.decode('utf-8', 'backslashreplace')} = {shown}")
