"""Parses configuration files: one directive per line, quotes as in inline requests, ``#`` for comments.

``include`` takes a path relative to the file that contains it; the last part may be a glob pattern. The
included lines replace the directive, so later lines override them. As in Redis, that includes ``save``, whose lines
otherwise add to each other: after an include, each ``save`` of the including file replaces all earlier ones.
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
    after_include = False
    for number, directive in _lines(path):
        place = f"{path}, line {number}"
        if directive.name != "include":
            if directive.name == "save" and after_include:
                yield place, Directive("save", [""])
            yield place, directive
            continue
        if len(directive.values) != 1:
            raise ConfigError(f"{place}: 'include' takes one path; quote it")
        for included in _included(path, directive.values[0], place):
            yield from directives(included, depth=depth + 1)
        after_include = True


def _lines(path: Path) -> Iterator[tuple[int, Directive]]:
    try:
        lines = lines_of(path)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; correct the path or its permissions"
        ) from None
    for number, line in enumerate(lines, 1):
        found = parse_line(line, f"{path}, line {number}")
        if found is not None:
            yield number, found


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file without the line feeds, which alone end a line, as in Redis: values and comments may
    contain the characters at which `str.splitlines` splits, such as U+2028. Raises `OSError`."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return text.removesuffix("\n").split("\n") if text else []


def parse_line(line: str, place: str) -> Directive | None:
    """Parse a line, which may end with a carriage return. Returns None for an empty line or a comment."""
    line = line.strip(" \t\r")
    if line.startswith("#"):
        return None
    try:
        words = split(line.encode("utf-8", "surrogateescape"))
    except ProtocolError:
        raise ConfigError(f"{place}: unbalanced quotes in {line!r}") from None
    if not words:
        return None
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
