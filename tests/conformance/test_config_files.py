"""Configuration files mean what they mean in Redis: the lines that add to each other, and where a line ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.config.loading import load
from headwater.errors import ConfigError
from tests.conformance.wire import connected
from tests.peers import Peer, PeerFailed

SAVES = {
    "lines add": "save 1 1\nsave 2 2\nsave 1 1\n",
    "an empty one removes": 'save 1 1\nsave ""\nsave 2 2 3 3\n',
    "an included one adds": "save 9 9\ninclude a.conf\n",
    "one after an include replaces": "save 9 9\ninclude a.conf\nsave 3 3\nsave 4 4\n",
    "even after an empty include": "save 1 1\ninclude empty.conf\nsave 2 2\n",
    "two includes add": "include a.conf\ninclude b.conf\n",
    "an include with an include": "include nested.conf\n",
    "and one after it": "include nested.conf\nsave 5 5\n",
}
INCLUDED = {
    "a.conf": "save 1 1\nsave 2 2\n",
    "b.conf": "save 3 3\n",
    "empty.conf": "\n",
    "nested.conf": "include a.conf\nsave 4 4\n",
}
NAME = "replica-announce-ip"
"""A setting that accepts any text."""

LINES = {
    "line separator": f'{NAME} "a\u2028b"\n',
    "next line": f'{NAME} "a\x85b"\n',
    "form feed": f'{NAME} "a\fb"\n',
    "carriage return": f'{NAME} "a\rb"\n',
    "no-break space at the end": f"{NAME} a\xa0\n",
    "in a comment": f"# a\u2028b\x85c\fd\re\n{NAME} a\n",
    "line ends of Windows": f"# c\r\n\r\n \t\r\n{NAME} a\r\n",
    "form feed before a name": f"\f\n\f{NAME} a\n",
    "no end of line": f"{NAME} a",
}
REFUSED = {
    "carriage return between settings": "timeout 1\rtimeout 2\n",
    "form feed in a number": "timeout 5\f\n",
    "form feed after a name": "timeout\f5\n",
    "no-break space": "\xa0\n",
    "line separator before a comment": "\u2028# c\n",
}


def values(text: str, name: str, directory: Path, peer: Callable[..., Peer]) -> tuple[str, str]:
    """Return a setting's value after reading ``text``: Redis's and ours."""
    path = directory / "main.conf"
    path.write_bytes(text.replace("include ", f"include {directory}/").encode())
    with connected(peer("redis-8.2", "--include", str(path)).port) as wire:
        theirs = wire.ask("CONFIG", "GET", name).split(b"\r\n", 4)[4]
    return theirs.decode().removesuffix("\r\n"), load(file=path, environ={}).get(name)


@pytest.mark.peer
@pytest.mark.parametrize("case", SAVES)
def test_save_points_of_lines_and_includes_are_those_of_redis(
    case: str, tmp_path: Path, peer: Callable[..., Peer]
) -> None:
    for name, text in INCLUDED.items():
        (tmp_path / name).write_text(text.replace("include ", f"include {tmp_path}/"))
    theirs, ours = values(SAVES[case], "save", tmp_path, peer)
    assert ours == theirs


@pytest.mark.peer
@pytest.mark.parametrize("case", LINES)
def test_a_line_ends_where_it_ends_in_redis(
    case: str, tmp_path: Path, peer: Callable[..., Peer]
) -> None:
    theirs, ours = values(LINES[case], NAME, tmp_path, peer)
    assert ours == theirs


@pytest.mark.peer
@pytest.mark.parametrize("case", REFUSED)
def test_other_characters_are_not_white_space_as_in_redis(
    case: str, tmp_path: Path, peer: Callable[..., Peer]
) -> None:
    with pytest.raises(PeerFailed):
        values(REFUSED[case], "timeout", tmp_path, peer)
    with pytest.raises(ConfigError, match=r"main\.conf, line 1: "):
        load(file=tmp_path / "main.conf", environ={})
