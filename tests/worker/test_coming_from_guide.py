"""The programs in the guide for users of other libraries run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from headwater import App

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "coming-from.md").read_text(
    encoding="utf-8"
)


@pytest.fixture
def names() -> dict[str, Any]:
    """The names that all programs of the guide define."""
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    found: dict[str, Any] = {}
    exec("\n".join(blocks), found)
    return found


@pytest.mark.slow
def test_the_tests_of_the_guide_pass(names: dict[str, Any]) -> None:
    tests = [name for name in names if name.startswith("test_")]
    assert tests
    for name in tests:
        asyncio.run(names[name]())


@pytest.mark.slow
async def test_the_handler_of_the_guide_retries_and_dead_letters_as_described(
    names: dict[str, Any],
) -> None:
    app: App = names["app"]
    tries = 0

    def deliver(to: str, text: str) -> None:
        nonlocal tries
        tries += 1
        if tries < 12:
            raise names["Busy"]

    names["deliver"] = deliver
    async with app.test() as t:
        await t.send(names["mails"], names["Mail"]("nobody", "x"))
        (letter,) = t.dead(names["mails"])
        assert "'nobody' is not an address" in letter.error
        await t.send(names["mails"], names["Mail"]("bob@example.org", "x"))
        await t.advance("11m")
        assert tries == 12
        assert t.results(names["sent"]) == [names["Sent"]("bob@example.org")]
