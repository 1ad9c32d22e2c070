"""docs/guide/security.md: what its users are told, they are told; its rules are all there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headwater.config.loading import load
from headwater.server.services.acl.access import AccessControl
from headwater.server.services.acl.rules import _SIMPLE, _WHOLE
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Reply, Simple

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "guide" / "security.md").read_text(encoding="utf-8")


def session() -> list[tuple[list[str], str]]:
    """What redis-cli is told in the guide, and what it prints."""
    (block,) = re.findall(r"## Users\n.*?```console\n(.*?)```", GUIDE, re.DOTALL)
    return [
        (shlex.split(command)[1:], printed)
        for command, printed in re.findall(r"\$ (redis-cli .+)\n(.+)\n", block)
    ]


def printed(reply: Reply) -> str:
    """A reply as redis-cli prints it."""
    if isinstance(reply, Failure):
        return f"(error) {reply.text.decode()}"
    if isinstance(reply, Simple):
        return reply.text.decode()
    return f"(integer) {reply}" if isinstance(reply, int) else f'"{bytes(reply).decode()}"'  # type: ignore[arg-type]


def ask(store: LocalStore, words: list[str]) -> str:
    """Authenticate as ``--user`` and ``--pass`` say, then send the rest."""
    client: LocalClient = store.client(kind="tcp")
    if words[0] == "--user":
        client.send("AUTH", words[1], words[3])
        while (answer := client.reply()) is None:  # a refused login waits
            store.advance(store.seconds_ahead())
        if isinstance(answer, Failure):
            return printed(answer)
        words = words[4:]
    return printed(client(*words))


def test_the_guides_session_is_answered_so() -> None:
    store = LocalStore(journaled=False)
    assert len(session()) >= 8
    for words, expected in session():
        assert ask(store, words) == expected, words


def test_the_guides_lines_define_users(tmp_path: Path) -> None:
    (lines,) = re.findall(r"```text\n(requirepass.*?)```", GUIDE, re.DOTALL)
    path = tmp_path / "headwater.conf"
    path.write_text(lines)
    access = AccessControl(load(file=path, environ={}))
    assert sorted(access.users) == [b"default", b"reports", b"shipping"]
    assert access.user_with(b"default", b"the-password-of-default") is access.default
    assert access.user_with(b"reports", b"password") is not None


@pytest.mark.parametrize("word", sorted({*_SIMPLE, *_WHOLE} - {b"~*", b"&*"}))
def test_every_word_of_a_rule_is_explained(word: bytes) -> None:
    if b"sanitize" not in word:  # which changes nothing here
        assert word.decode() in GUIDE
