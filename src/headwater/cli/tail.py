"""``headwater tail`` and ``headwater add``: print the entries of a stream, and add one.

headwater tail orders -f --where 'total >= 100'
headwater tail orders --from 10m -o json
headwater add orders item=tea number=2
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import StreamName, id_or_none
from headwater.cli.command import Option, Positional
from headwater.cli.output import Output, OutputFormat, json_text, print_csv
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.common.names import quoted
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headwater.operations.entries import Condition, TextEntry

BLOCK_MS = 5_000
"""Maximum time that one read of ``-f`` waits for new entries, in milliseconds."""


def _start(text: str) -> str:
    """Parse ``--from``. Return the id after which reading begins."""
    from headwater.common.moments import milliseconds_of

    return id_or_none(text) or f"{max(0, milliseconds_of(text, 'time') - 1)}-{2**64 - 1}"


def _condition(text: str) -> str:
    """Check a condition and return it unchanged. Raises `HeadwaterError` if it is invalid."""
    from headwater.operations.entries import Condition

    Condition.parse(text)
    return text


def _field(text: str) -> str:
    """Check FIELD=VALUE and return it unchanged. Raises `HeadwaterError` if it is invalid."""
    name, equals, _value = text.partition("=")
    if not equals or not name:
        raise HeadwaterError(f"{text!r} is not a field: write FIELD=VALUE, such as item=tea")
    return text


def tail(
    stream: StreamName,
    *,
    count: Annotated[
        int, Option("--count", "-n", min=0, metavar="N", help="Print the last N entries.")
    ] = 10,
    since: Annotated[
        str | None,
        Option(
            "--from",
            parser=_start,
            metavar="ID|TIME",
            help="Print all entries after this id, or from this time on (such as 10m or an ISO time).",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        Option(
            parser=_condition,
            metavar="'FIELD OP VALUE'",
            help="Only entries that meet this condition; OP is one of = != < <= > >= and ~ (contains). May be "
            "repeated: all conditions must hold.",
        ),
    ] = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Continue with new entries, until Ctrl-C.")
    ] = False,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Print entries of a stream.

    The oldest comes first. As JSON, each entry is one line.
    """
    from headwater.operations.entries import Condition, TextEntry, last, next_after

    if output is OutputFormat.CSV:
        print_csv([], TextEntry._fields)
    conditions = [Condition.parse(one) for one in where or ()]
    if since is None:
        found, after = query(url, last(stream, max(1, count), conditions))
        _print(found[-count:] if count else [], output)
    else:
        after = _print_from(url, stream, since, conditions, output)
    while follow:
        page = query(url, next_after(stream, after, block_ms=BLOCK_MS), waits=True)
        _print(_fitting(page, conditions), output)
        after = page[-1].id if page else after


def _print_from(
    url: str, stream: str, after: str, conditions: Sequence[Condition], output: OutputFormat
) -> str:
    """Print the existing entries after the id ``after``. Return the id of the last entry read."""
    from headwater.operations.entries import page_after

    while page := query(url, page_after(stream, after)):
        _print(_fitting(page, conditions), output)
        after = page[-1].id
    return after


def _fitting(page: Iterable[TextEntry], conditions: Sequence[Condition]) -> list[TextEntry]:
    return [one for one in page if all(each.holds(one) for each in conditions)]


def _print(found: Iterable[TextEntry], output: OutputFormat) -> None:
    for one in found:
        match output:
            case OutputFormat.JSON:
                print(json_text(one._asdict()))
            case OutputFormat.CSV:
                print_csv([one._asdict()], head=False)
            case OutputFormat.TABLE:
                pairs = (f"{quoted(name)}={quoted(value)}" for name, value in one.fields)
                print(one.id, *pairs, sep="  ")
    sys.stdout.flush()


def add(
    stream: StreamName,
    fields: Annotated[
        list[str],
        Positional(
            metavar="FIELD=VALUE…", parser=_field, help="The fields of the entry, in order."
        ),
    ],
    *,
    maxlen: Annotated[
        int | None,
        Option(min=0, metavar="N", help="Also trim the stream to about N entries."),
    ] = None,
    once: Annotated[
        str | None,
        Option(
            metavar="NAME", help="Add it only if no entry was added as NAME in the last 24 hours."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Add an entry to a stream.

    Prints the id of the entry.
    """
    from headwater.groups.settling.adding import add_once, add_one
    from headwater.groups.settling.settling import Addition

    pairs = []
    for field in fields:
        name, _equals, value = field.partition("=")
        pairs.append(
            (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
        )
    addition = Addition(stream, pairs, maxlen)
    if once is None:
        print(query(url, add_one(addition), creates=True))
    else:
        found = add_once(addition, key=once, window_ms=24 * 3_600_000)
        print(query(url, found, creates=True))
