"""The generated reference pages are up to date."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from typing import Any

import pytest

from headwater import errors
from headwater.cli.main import WORDS, app, load
from tools import api_reference, boards, configuration_page, reference, reliability
from tools.api_docstrings import Anchors


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    written = reference.CLI_PAGE.read_text(encoding="utf-8")
    assert written == reference.cli_page(), "run `make docs` and review the changes"


def test_the_diagram_of_an_entrys_states_is_up_to_date() -> None:
    written = reference.GUIDE.read_text(encoding="utf-8")
    assert written == reference.guide_with_states(), "run `make docs` and review the changes"


def test_the_page_of_the_commands_is_up_to_date() -> None:
    written = reference.COMMANDS_PAGE.read_text(encoding="utf-8")
    assert written == reference.commands_page(), "run `make docs` and review the changes"


def test_the_page_of_the_settings_is_up_to_date() -> None:
    written = configuration_page.PAGE.read_text(encoding="utf-8")
    assert written == configuration_page.page(), "run `make docs` and review the changes"


def test_the_page_of_the_python_api_is_up_to_date() -> None:
    written = api_reference.PAGE.read_text(encoding="utf-8")
    assert written == api_reference.page(), "run `make docs` and review the changes"


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    exported = {name: [*import_module(name).__all__] for name in api_reference.PUBLIC}
    exported["headwater.errors"] = [
        name
        for name, one in vars(errors).items()
        if isinstance(one, type) and issubclass(one, Exception)
    ]
    assert api_reference.missing(exported) == [], "add it to tools/api_sections.py"


def test_every_public_name_and_member_has_a_docstring() -> None:
    assert api_reference.undocumented() == []


def test_every_link_of_the_python_api_has_a_target() -> None:
    # Given the page, its headings and its links
    page = api_reference.page()
    anchors = Anchors()
    there = {anchors.of(heading) for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    links = {link for link in re.findall(r"\]\(([^)]+)\)", page) if "://" not in link}
    # Then the target of each is a heading or a file
    assert {link for link in links if link.startswith("#") and link[1:] not in there} == set()
    files = {link.partition("#")[0] for link in links if not link.startswith("#")}
    assert [name for name in files if not (api_reference.PAGE.parent / name).exists()] == []


def test_the_page_of_reliability_is_up_to_date() -> None:
    written = reliability.PAGE.read_text(encoding="utf-8")
    assert written == reliability.page(), "run `make docs` and review the changes"


@pytest.mark.parametrize("name", WORDS)
def test_the_summary_of_a_subcommand_is_the_first_line_of_its_help(name: str) -> None:
    first = (load(name).help or "").split("\n")[0].strip()
    assert first == WORDS[name]


@pytest.mark.parametrize("name", WORDS)
def test_every_option_has_a_help_text(name: str) -> None:
    assert [*silent_options(load(name), name)] == []


def silent_options(command: Any, path: str) -> list[str]:
    """Return the options and arguments of ``command`` and its subcommands that have no help text."""
    silent = [
        f"{path} {parameter.opts[0]}"
        for parameter in command.params
        if not getattr(parameter, "help", None)
    ]
    for word in command.list_commands(None) if hasattr(command, "list_commands") else ():
        silent += silent_options(command.get_command(None, word), f"{path} {word}")
    return silent


def test_the_board_and_the_alerts_are_up_to_date() -> None:
    for path, text in ((boards.BOARD, boards.board()), (boards.ALERTS, boards.alerts())):
        assert path.read_text(encoding="utf-8") == text, "run `make docs` and review the changes"


LEAVES = {
    path.removeprefix("headwater "): context
    for path, context in reference.commands(app, "headwater")
    if not hasattr(context.command, "list_commands")
}


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_an_example_that_is_a_valid_command_line(path: str) -> None:
    # Given the example in the help of a command
    context = LEAVES[path]
    assert f"Example: headwater {path}" in context.get_help()
    example = shlex.split(str(context.command.epilog).removeprefix(f"Example: headwater {path}"))
    # Then its words are accepted, without running the command
    context.command.make_context(path, example, parent=context.parent)
