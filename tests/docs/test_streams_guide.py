"""The streams guide: its transcripts have the real replies, and its program runs."""

from __future__ import annotations

import re

from headwater.commands.table import COMMANDS
from tests.conformance.transcript import Story
from tests.guides import GUIDES, outputs

TEXT = (GUIDES / "streams.md").read_text(encoding="utf-8")

_PAUSE = re.compile(r"# (\d+(?:ms|s|h)) pass$")


def test_the_transcripts_have_the_real_replies() -> None:
    story = Story()
    for block in re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL):
        expected: list[str] = []
        received: list[str] = []
        for line in block.splitlines():
            if pause := _PAUSE.match(line):
                story.tell(f"advance {pause[1]}")
            elif line.startswith("> "):
                received += story.tell(line[2:])
            else:
                expected.append(line)
        assert received == expected, block


def test_its_program_runs() -> None:
    assert outputs("streams.md") == ["[1] 1 1\n"]


def test_every_command_of_headwater_has_a_section_and_an_example() -> None:
    ours = [
        row.name.upper() for row in COMMANDS.values() if row.since == "0.1.0" and row.name[0] == "x"
    ]
    assert sorted(ours) == [
        "XCOUNTERS",
        "XDELAYED",
        "XLAG",
        "XRENEW",
        "XRETIRE",
        "XSETTLE",
        "XSPLIT",
    ]
    for name in ours:
        assert f"\n## {name}: " in TEXT
        assert f"\n    {name} key " in TEXT
        assert f"\n> {name} " in TEXT
