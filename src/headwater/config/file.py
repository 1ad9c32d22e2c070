"""Parses configuration files: one directive per line, quotes as in inline requests, ``#`` for comments.

``include`` takes a path relative to the file that contains it; the last part may be a glob pattern. The
included lines replace the directive, so later lines override them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.errors import ConfigError, ProtocolError
from headwater.resp.inline import split

MAX_DEPTH = 16
"""Maximum depth of nested includes; a file that includes itself exceeds it."""


class Directive(NamedTuple):
    """A line of a configuration file: a name in lower case and the words after the name."""

    name: str
    values: list[str]


def directives(path: Path, *, depth: int = 0) -> Iterator[tuple[str, Directive]]:
    """Yield the directives of a file and of the files it includes, each with its place (``/etc/hw.conf, line 3``).

    Raises `ConfigError` if a file cannot be read or a line cannot be parsed.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(
            f"{path}: includes are nested more than {MAX_DEPTH} deep; does it include itself?"
        )
    for number, directive in _lines(path):
        place = f"{path}, line {number}"
        if directive.name != "include":
            yield place, directive
            continue
        if len(directive.values) != 1:
            raise ConfigError(f"{place}: 'include' takes one path; quote it")
        for included in _included(path, directive.values[0], place):
            yield from directives(included, depth=depth + 1)


def _lines(path: Path) -> Iterator[tuple[int, Directive]]:
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; correct the path or its permissions"
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        found = parse_line(line, f"{path}, line {number}")
        if found is not None:
            yield number, found


def parse_line(line: str, place: str) -> Directive | None:
    """Parse a line. Returns None for an empty line or a comment."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    try:
        words = split(line.encode("utf-8", "surrogateescape"))
    except ProtocolError:
        raise ConfigError(f"{place}: unbalanced quotes in {line!r}") from None
    name, *values = (word.decode("utf-8", "surrogateescape") for word in words)
    if not values:
        raise ConfigError(f'{place}: {name!r} has no value; write {name} and its value, or ""')
    return Directive(name.lower(), values)


def _included(path: Path, pattern: str, place: str) -> list[Path]:
    wanted = path.parent / pattern
    if not set(wanted.name) & set("*?["):
        if not wanted.exists():
            raise ConfigError(
                f"{place}: {wanted} does not exist; correct the path or remove the line"
            )
        return [wanted]
    return sorted(wanted.parent.glob(wanted.name))
