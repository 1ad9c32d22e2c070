"""Written cases: commands in text files, run on Headwater and on real servers.

    == title of the case                           runs on every server
    == acknowledging and deleting at once [8.2]    runs on the named servers: 7.0, 8.2, 9.1
    XADD s 1-1 name value                          compared with the server's reply
    @known-difference XADD s 0-0 a b               must differ where known_differences.toml says so
        1-1                                        its reply (recorded.py)
    # comment

Words are quoted as in redis-cli. ``<now-2h>`` is the server's time two hours ago, in ms.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from headwater.resp.inline import split

DIRECTORY = Path(__file__).parent / "cases"

VERSIONS = {"7.0": "redis-7.0", "8.2": "redis-8.2", "9.1": "valkey-9.1"}
TITLE = re.compile(r"== (?P<title>[^\[]*?)\s*(?:\[(?P<servers>[^\]]*)\])?$")
_NOW = re.compile(rb"<now(?P<hours>[+-]\d+)h>")


class Line(NamedTuple):
    """A command of a case, and its tag; the tag may be empty."""

    words: tuple[bytes, ...]
    tag: str
    number: int


class Case(NamedTuple):
    """Commands for an empty store, and the servers that they run on."""

    file: str
    title: str
    servers: tuple[str, ...]
    lines: tuple[Line, ...]

    def history(self, now_ms: int) -> list[tuple[bytes, ...]]:
        """Return the commands with absolute times."""
        return [tuple(_timed(word, now_ms) for word in line.words) for line in self.lines]


def _timed(word: bytes, now_ms: int) -> bytes:
    return _NOW.sub(lambda match: b"%d" % (now_ms + int(match["hours"]) * 3_600_000), word)


def read(path: Path) -> list[Case]:
    """Read the cases of a file."""
    cases: list[Case] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text or text.startswith(("#", " ")):
            continue
        title = TITLE.match(text)
        if title:
            named = (title["servers"] or "7.0 8.2 9.1").split()
            servers = tuple(VERSIONS[version] for version in named)
            cases.append(Case(path.stem, title["title"], servers, ()))
            continue
        tag, command = "", text
        if text.startswith("@"):
            tag, _, command = text[1:].partition(" ")
        line = Line(tuple(split(command.encode())), tag, number)
        cases[-1] = cases[-1]._replace(lines=(*cases[-1].lines, line))
    return cases


def all_cases() -> list[Case]:
    return [case for path in sorted(DIRECTORY.glob("*.txt")) for case in read(path)]
