"""``headwater dead``: list, show, replay and drop dead letters.

headwater dead list orders
headwater dead show orders 1526569498055-0
headwater dead replay orders --all
headwater dead drop orders 1526569498055-0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from headwater.cli.arguments import DryRun, Yes, entry_id
from headwater.cli.command import CommandGroup, Option, Positional, confirm, watched, wrong
from headwater.cli.output import Output, OutputFormat, say, show
from headwater.cli.query import DEFAULT_URL, AllGroups, Url, query
from headwater.common.names import quoted, text_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.groups.protocol.operation import Operation
    from headwater.groups.settling.replay import Replayed
    from headwater.messages.dead import DeadLetter
    from headwater.operations.records import Action

app = CommandGroup()


def _id(text: str) -> str:
    """Parse an id as `entry_id` does. Raises `HeadwaterError`, which names the command that lists the ids."""
    try:
        return entry_id(text)
    except HeadwaterError:
        raise HeadwaterError(
            f"{text!r} is not the id of a dead letter; `headwater dead list` shows their ids, such as "
            "1526569498055-0"
        ) from None


StreamName = Annotated[
    str, Positional(metavar="STREAM", help="The stream from which the dead letters come.")
]
Ids = Annotated[
    list[str] | None, Positional(metavar="ID…", parser=_id, help="Ids of dead letters.")
]
All = Annotated[bool, Option("--all", help="All dead letters.")]
From = Annotated[
    str | None,
    Option(
        "--from",
        metavar="KEY",
        help="The dead-letter stream. If several streams share it, only the dead letters of STREAM "
        "count. [default: {STREAM}.dead]",
    ),
]


@app.add("list")
@watched
def list_letters(
    stream: StreamName,
    *,
    count: Annotated[int, Option(min=1, metavar="N", help="List at most N dead letters.")] = 100,
    after: Annotated[
        str | None, Option(metavar="ID", parser=_id, help="List only dead letters after this id.")
    ] = None,
    source: From = None,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List dead letters, oldest first: id, time, deliveries, entry and error."""
    from headwater.groups.settling.dead_letters import page
    from headwater.messages.dead import DeadLetter

    where = _source(stream, source)
    letters: list[DeadLetter] = []
    while found := query(url, page(where, after=after or "", count=count)):
        letters += _of(stream, found)
        if len(letters) >= count or len(found) < count:
            break
        after = found[-1].id
    letters = letters[:count]
    if not letters:
        _report_none(url, stream, where)

    def lines() -> None:
        for letter in letters:
            what = f"{quoted(letter.stream)} {letter.entry_id} in group {quoted(letter.group)}"
            error = letter.error.replace("\n", " ")
            say(f"{letter.id}  {letter.at}  {letter.deliveries}x  {what}  {error}")
        if len(letters) == count:
            say(f"at most {count:,} are listed; there may be more (--count)")

    show([_document(letter) for letter in letters], output, lines, DeadLetter._fields)


@app.add("show")
def show_letters(
    stream: StreamName,
    ids: Ids = None,
    *,
    source: From = None,
    output: Output = OutputFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show dead letters in full: fields, error and traceback."""
    from headwater.groups.settling.dead_letters import find

    letters = query(url, find(_source(stream, source), _some(ids)))

    def text() -> None:
        for letter in letters:
            _print(letter)

    show([_document(letter) for letter in letters], output, text)


@app.add()
def replay(
    stream: StreamName,
    ids: Ids = None,
    *,
    every: All = False,
    all_groups: AllGroups = False,
    dry_run: DryRun = False,
    source: From = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Deliver entries again to the groups that could not handle them, and remove the dead letters.

    Only the group of the dead letter gets the entry, with a delivery count of zero. If the entry or
    its group was deleted, the entry is added to the stream again, but only if the stream has no
    other group or --all-groups is given.
    """
    from headwater.groups.settling.replay import DONE
    from headwater.groups.settling.replay import replay as replay_letters
    from headwater.operations.records import Action

    where = _source(stream, source)
    done: list[str] = []
    refused = 0
    try:
        for letters in _chosen(url, stream, where, ids, every=every):
            if dry_run:
                _preview(letters)
                continue
            for outcome in query(url, replay_letters(where, letters, all_groups=all_groups)):
                refused += _print_outcome(outcome)
                done += [outcome.letter.id] if outcome.how in DONE else []
    finally:
        _record(url, stream, Action.REPLAY, done, to=where, refused=refused)
    if refused:
        raise HeadwaterError(f"{refused} not replayed")


def _print_outcome(outcome: Replayed) -> int:
    """Print the outcome for a dead letter. Return 1 if it was refused, otherwise 0."""
    letter, what = outcome.letter, f"{quoted(outcome.letter.stream)} {outcome.entry_id}"
    match outcome.how:
        case "returned":
            say(f"{letter.id}: {what} is pending in group {letter.group} again")
        case "added":
            say(f"{letter.id}: {letter.stream} {letter.entry_id} added again as {what}")
        case "coming":
            say(f"{letter.id}: group {letter.group} will still handle {what}; record removed")
        case "gone":
            say(f"{letter.id}: another operator has replayed or dropped it")
        case _:
            say(f"{letter.id}: {outcome.reason}", error=True)
            return 1
    return 0


@app.add()
def drop(
    stream: StreamName,
    ids: Ids = None,
    *,
    every: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    source: From = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete dead letters. This cannot be undone.

    With --all, asks for confirmation first.
    """
    from headwater.groups.settling.dead_letters import drop as remove
    from headwater.operations.records import Action

    where = _source(stream, source)
    pages = _chosen(url, stream, where, ids, every=every)  # iteration raises for a mistyped id
    if dry_run:
        for letters in pages:
            _preview(letters)
        return
    chosen = [[letter.id for letter in letters] for letters in pages]
    number = sum(map(len, chosen))
    if every and number and not yes:
        what = "1 dead letter" if number == 1 else f"{number:,} dead letters"
        confirm(f"{what} in {where} will be deleted. Continue?")
    done: list[str] = []
    dropped = 0
    try:
        for page in chosen:
            dropped += query(url, remove(where, page))
            done += page
    finally:
        if done or not number:
            say(f"{dropped} dropped")
        _record(url, stream, Action.DROP, done, to=where, refused=len(done) - dropped)


def _chosen(
    url: str, stream: str, where: str, ids: list[str] | None, *, every: bool
) -> Iterator[list[DeadLetter]]:
    """Yield the dead letters with the given ids or, with ``every``, all that exist now, page by page."""
    from headwater.groups.settling.dead_letters import find

    if every:
        yield from _pages(url, stream, where, ids)
    else:
        yield query(url, find(where, _some(ids)))


def _preview(letters: Sequence[DeadLetter]) -> None:
    for letter in letters:
        say(
            f"{letter.id}  {quoted(letter.stream)} {letter.entry_id} in group {quoted(letter.group)}"
        )


def _record(
    url: str, stream: str, action: Action, done: list[str], *, to: str, refused: int
) -> None:
    """Record the action on the dead letters ``done``, even if a later dead letter failed."""
    from headwater.operations.records import record

    if done:
        count = len(done) - (refused if action == "drop" else 0)
        query(url, record(stream, action, done, to=to, refused=refused, count=count))


def _source(stream: str, source: str | None) -> str:
    from headwater.messages.keys import dead_letter_stream

    return source or dead_letter_stream(stream)


def _some(ids: list[str] | None) -> list[str]:
    if not ids:
        raise wrong("name at least one dead letter; `headwater dead list` shows their ids")
    return ids


def _report_none(url: str, stream: str, where: str) -> None:
    """Print to standard error that there are no dead letters. Raises `HeadwaterError` if neither the stream nor its
    dead-letter stream exists."""
    replies = query(url, _exist(stream, where))
    if replies == (False, False):
        from headwater.client.redaction import redacted
        from headwater.groups.protocol.missing_stream import partitions_of

        if first := query(url, partitions_of(stream)):
            raise HeadwaterError(
                f"{stream!r} is split into partitions, each with its own dead letters: name one of "
                f"them, such as {first}"
            )
        raise HeadwaterError(
            f"{redacted(url)} has no stream {stream!r} and no dead letters of it ({where!r}). Check "
            "the name and --url; if the dead-letter stream has another name, use --from."
        )
    say(f"no dead letters in {where}", error=True)


def _exist(*keys: str) -> Operation[tuple[bool, ...]]:
    from headwater.groups.protocol.operation import accepted

    replies = yield [["EXISTS", key] for key in keys]
    return tuple(bool(accepted(reply)) for reply in replies)


def _pages(url: str, stream: str, where: str, ids: list[str] | None) -> Iterator[list[DeadLetter]]:
    """Yield all dead letters that exist now, a page at a time. Each page is read once."""
    from headwater.groups.settling.dead_letters import page

    if ids:
        raise wrong("give either --all or ids, not both")
    after = ""
    last = query(url, _newest(where))
    if last == "0-0":
        _report_none(url, stream, where)
    while letters := query(url, page(where, after=after, until=last)):
        if mine := _of(stream, letters):
            yield mine
        after = letters[-1].id


def _of(stream: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
    """Return the letters that name ``stream`` or no stream. Several streams may share a dead-letter stream."""
    return [letter for letter in letters if letter.stream in ("", stream)]


def _newest(where: str) -> Operation[str]:
    """Return the id of the newest dead letter; ``0-0`` if none exists. Replaying stops at this id, so an entry
    that becomes a dead letter again in the meantime is not replayed again."""
    from headwater.groups.protocol.operation import accepted

    replies = yield [["XREVRANGE", where, "+", "-", "COUNT", 1]]
    entries = accepted(replies[0])
    newest: str = entries[0][0].decode() if entries else "0-0"
    return newest


def _document(letter: DeadLetter) -> dict[str, object]:
    """Return a dead letter as a JSON object. The fields are pairs, because a name may occur twice."""
    return {**letter._asdict(), "fields": [[*map(text_of, field)] for field in letter.fields]}


def _print(letter: DeadLetter) -> None:
    say(f"{letter.id}")
    say(f"  entry       {quoted(letter.stream)} {letter.entry_id}")
    say(f"  group       {quoted(letter.group)}, consumer {quoted(letter.consumer)}")
    say(f"  deliveries  {letter.deliveries}")
    say(f"  died at     {letter.at}")
    say(f"  error       {letter.error}")
    for line in letter.trace.splitlines():
        say(f"    {line}")
    for name, value in letter.fields:
        say(f"  {quoted(text_of(name))} = {quoted(text_of(value))}")
