"""The generated reference pages are what the program says."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.cli.main import WORDS, load
from tools import configuration_page, reference, reliability


def test_the_page_of_the_command_line_is_what_the_program_prints() -> None:
    written = reference.CLI_PAGE.read_text(encoding="utf-8")
    assert written == reference.cli_page(), "run `make docs` and look at what changed"


def test_the_page_of_the_commands_is_what_the_command_table_says() -> None:
    written = reference.COMMANDS_PAGE.read_text(encoding="utf-8")
    assert written == reference.commands_page(), "run `make docs` and look at what changed"


def test_the_page_of_the_settings_is_what_their_declarations_say() -> None:
    written = configuration_page.PAGE.read_text(encoding="utf-8")
    assert written == configuration_page.page(), "run `make docs` and look at what changed"


def test_the_page_of_reliability_is_what_the_campaigns_wrote_down() -> None:
    written = reliability.PAGE.read_text(encoding="utf-8")
    assert written == reliability.page(), "run `make docs` and look at what changed"


@pytest.mark.parametrize("name", WORDS)
def test_a_word_says_in_the_list_what_it_says_itself(name: str) -> None:
    first = (load(name).help or "").split("\n")[0].strip()
    assert first == WORDS[name].summary


@pytest.mark.parametrize("name", WORDS)
def test_every_option_says_what_it_does(name: str) -> None:
    assert [*silent_options(load(name), name)] == []


def silent_options(command: Any, path: str) -> list[str]:
    """Options and arguments of ``command`` and its words that have no help text."""
    silent = [
        f"{path} {parameter.opts[0]}"
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    for word, inner in getattr(command, "commands", {}).items():
        silent += silent_options(inner, f"{path} {word}")
    return silent
