"""Transcripts: commands of several clients with their replies, as readable text.

    Paragraphs may contain prose.

    XADD s 1-1 name value
        1-1
    B> XREAD BLOCK 0 STREAMS s $
        B waits
    advance 30s
        30s pass

Under each command (of client A unless another is named) is its result; ``B: …`` is what a blocked client has received. ``advance 30s`` (ms, s, h) moves the clock; ``crash``
cuts the power and restarts from the journal. Strings that are not plain words are quoted, so ``1``
is a number and ``"1"`` a string. ``REWRITE_TRANSCRIPTS=1`` writes the current replies into the
files.
"""

from __future__ import annotations

import re
from pathlib import Path

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.resp.inline import split
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Map, Nil, Reply, Simple

DIRECTORY = Path(__file__).parent / "transcripts"
INDENT = "    "

_UNITS = {"ms": 0.001, "s": 1.0, "h": 3600.0}
_ADVANCE = re.compile(r"advance (\d+)(ms|s|h)$")
_CLIENT = re.compile(r"(?:(?P<name>[A-Z])> )?(?P<words>.*)$")
_PLAIN = re.compile(rb"(?!-?\d+$)[\w.:-]+$")
_NIL = {Nil.BULK: "nil", Nil.ARRAY: "nil-array", Nil.NULL: "null"}


def shown(reply: Reply) -> str:
    """Format a reply on one line.

    >>> shown([b"1-1", [b"a", b"1"], 7, Nil.ARRAY])
    '[1-1, [a, "1"], 7, nil-array]'
    """
    if isinstance(reply, list):
        return f"[{', '.join(map(shown, reply))}]"
    if isinstance(reply, Map):
        return f"{{{', '.join(f'{shown(name)}: {shown(value)}' for name, value in reply.pairs)}}}"
    if isinstance(reply, bytes):
        if _PLAIN.match(reply):
            return reply.decode()
        return '"' + _one_line(reply).replace('"', '\\"') + '"'
    if isinstance(reply, Nil):
        return _NIL[reply]
    if isinstance(reply, Failure | Simple):
        return ("error: " if isinstance(reply, Failure) else "") + _one_line(reply.text)
    return str(reply)


def _one_line(text: bytes) -> str:
    """Decode a text; what is not printable ASCII is escaped."""
    found = text.decode("ascii", "backslashreplace")
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in found)


class Story:
    """A store and its clients, while a transcript runs."""

    def __init__(self) -> None:
        self.store = LocalStore(config=Config(port=0))
        self.clients: dict[str, LocalClient] = {}

    def tell(self, line: str) -> list[str]:
        """Run a line and return its results."""
        if found := _ADVANCE.match(line):
            self.store.advance(int(found[1]) * _UNITS[found[2]])
            return [f"{found[1]}{found[2]} pass", *self._received("")]
        if line == "crash":
            self.store.crash()
            self.clients.clear()
            return ["recovered"]
        said = _CLIENT.match(line)
        assert said is not None
        name = said["name"] or "A"
        client = self.clients.setdefault(name, self.store.client())
        client.send(*split(said["words"].encode()))
        reply = client.reply()
        return [f"{name} waits" if reply is None else shown(reply), *self._received(name)]

    def _received(self, speaker: str) -> list[str]:
        """Return what the blocked clients have received."""
        found = []
        for name, client in sorted(self.clients.items()):
            while (reply := client.reply()) is not None:
                assert name != speaker, "one command, one reply"
                found.append(f"{name}: {shown(reply)}")
        return found

    def sound(self) -> list[str]:
        return broken_invariants(self.store.node.keyspace)


def rewritten(text: str) -> str:
    """Return the transcript with the current replies of the store."""
    story, paragraphs = Story(), []
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if any(line.startswith(INDENT) for line in lines):
            said = [line for line in lines if not line.startswith(INDENT)]
            lines = []
            for line in said:
                lines += [line, *(INDENT + answer for answer in story.tell(line))]
            assert story.sound() == [], f"after {said}"
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs) + "\n"
