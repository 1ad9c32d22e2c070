"""docs/guide/security.md: its session has the real replies, and it explains every rule."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headwater.config.loading import load
from headwater.server.services.acl.access import AccessControl
from headwater.server.services.acl.rules import _SIMPLE, _WHOLE
from headwater.testing.node import LocalClient, LocalStore
from tests.guides import as_redis_cli

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "guide" / "security.md").read_text(encoding="utf-8")


def session() -> list[tuple[list[str], str]]:
    """Return the commands for redis-cli in the guide, with their output."""
    (block,) = re.findall(r"## Users\n.*?```console\n(.*?)```", GUIDE, re.DOTALL)
    return [
        (shlex.split(command)[1:], printed)
        for command, printed in re.findall(r"\$ (redis-cli .+)\n(.+)\n", block)
    ]


def ask(store: LocalStore, words: list[str]) -> str:
    """Authenticate with ``--user`` and ``--pass`` if given, then send the other words."""
    client: LocalClient = store.client(kind="tcp")
    if words[0] == "--user":
        assert as_redis_cli(client("AUTH", words[1], words[3])) == "OK"
        words = words[4:]
    client.send(*words)
    while (answer := client.reply()) is None:  # the reply to a refused login is delayed
        store.advance(store.seconds_ahead())
    return as_redis_cli(answer)


def test_the_guides_session_has_the_real_replies() -> None:
    store = LocalStore(journaled=False)
    assert len(session()) >= 8
    for words, expected in session():
        assert without_ids(ask(store, words)) == without_ids(expected), words


def without_ids(text: str) -> str:
    return re.sub(r"\d+-\d+", "<id>", text)


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
    if b"sanitize" not in word:  # it has no effect in Headwater
        assert word.decode() in GUIDE
