"""No source, test or page uses a word that docs/glossary.md rejects."""

from __future__ import annotations

import re

import pytest

from tests.tidy import tree

REJECTED = {
    r"whoever|whosoever": "any client that, each process that",
    r"anew": "again",
    r"beside(?!s)": "with, next to, besides",
    r"(?<!there )(?:is|are) no (?!longer|such|more|less|data|other|doubt)\w+": "is not a …",
    r"custody": "in flight, lease table",
    r"chores?": "timers",
    r"heeds?": "wakes on",
}
"""Pattern → what to write instead."""

TEXTS = (".py", ".pxd", ".md", ".toml", ".lua")
QUOTES_THEM = ("docs/glossary.md", "tests/tidy/test_language.py")


@pytest.mark.parametrize("pattern", REJECTED)
def test_no_text_uses_a_rejected_word(pattern: str) -> None:
    # Given every source, test and page
    word = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
    paths = [
        path for path in tree.files() if path.suffix in TEXTS and path.as_posix() not in QUOTES_THEM
    ]

    # When they are searched
    found = [
        f"{path}:{number}: {line.strip()[:80]}"
        for path in paths
        for number, line in enumerate(tree.text(path).splitlines(), 1)
        if word.search(line)
    ]

    # Then none has the word
    assert paths
    assert not found, f"write {REJECTED[pattern]!r} instead:\n" + "\n".join(found)
