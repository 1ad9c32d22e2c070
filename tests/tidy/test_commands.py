"""Each command is declared once, and each declaration names the function that runs the command."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from headwater.commands.functions import functions_of
from headwater.commands.table import COMMANDS, Command, every_command
from tests.tidy import tree

PACKAGES = {"": "src/headwater/commands/", "server:": "src/headwater/server/commands/"}
PARAMETERS = {"": ["call"], "server:": ["call", "session", "services"]}
RESULTS = {"None", "NoReturn", "Wait | None", "Job | None"}

NAMED = Counter(command.run for command in every_command() if command.run)


def command_functions() -> dict[str, list[str]]:
    """The public functions of the two packages that return what commands return, with their
    parameters, by the name that a declaration has for them."""
    found: dict[str, list[str]] = {}
    for prefix, package in PACKAGES.items():
        for path in tree.code():
            if not str(path).startswith(package):
                continue
            place = ".".join(path.with_suffix("").parts).removeprefix(package.replace("/", "."))
            for node in ast.parse(tree.text(path)).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    arguments = node.args
                    names = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
                    result = ast.unparse(node.returns) if node.returns else ""
                    if result in RESULTS:
                        found[f"{prefix}{place}.{node.name}"] = names
    return found


def test_every_declaration_names_a_function_of_its_kind() -> None:
    found = command_functions()
    for run in NAMED:
        kind = "server:" if run.startswith("server:") else ""
        assert found.get(run) == PARAMETERS[kind], run


def test_every_function_of_a_command_is_named_by_a_declaration() -> None:
    forgotten = [
        name
        for name, parameters in command_functions().items()
        if parameters in PARAMETERS.values() and name not in NAMED
    ]
    assert forgotten == []


def test_every_command_has_a_function_or_subcommands() -> None:
    lacking = [one.name for one in every_command() if not one.run and not one.subcommands]
    assert lacking == []
    assert [one.name for one in COMMANDS.values() if one.run and one.subcommands] == ["command"]


@pytest.mark.parametrize(
    ("run", "error"),
    [
        ("xclam.xclaim", "there is no module headwater.commands.xclam"),
        ("keys.xclaim", "headwater.commands.keys has no function xclaim"),
    ],
)
def test_a_wrong_name_of_a_function_is_an_error_that_says_so(
    run: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command whose declaration names a function that does not exist
    wrong = Command(
        "xfoo", arity=1, group="stream", since="0.1.0", summary="Does not work.", run=run
    )
    monkeypatch.setitem(COMMANDS, b"XFOO", wrong)

    # Then the functions cannot be resolved, and the error names the command and the declaration
    with pytest.raises(ImportError, match=f"'xfoo' is declared with run='{run}'.*{error}"):
        functions_of("headwater.commands", on_session=False)


def test_the_table_is_read_without_the_engine_and_without_the_functions() -> None:
    program = (
        "import sys, headwater.commands.table\n"
        "loaded = [name for name in sys.modules if name.startswith(('headwater.engine',"
        " 'headwater.server', 'headwater.commands.call'))]\n"
        "print(*loaded)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def flags_tested(text: str) -> Iterator[str]:
    """Yield what code tests for membership in the flags of a command or of its keys: the literal, or the
    source of what is not a literal."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In | ast.NotIn):
            continue
        holder = node.comparators[0]
        if isinstance(holder, ast.Attribute) and holder.attr in {"flags", "shown_flags"}:
            tested = node.left
            yield str(tested.value) if isinstance(tested, ast.Constant) else ast.unparse(tested)


def unknown_flags(texts: Iterable[str]) -> set[str]:
    """Return what code tests and no declaration has."""
    rows = [*every_command(), *COMMANDS.values()]
    known = {flag for row in rows for flag in row.flags}
    known |= {flag for row in rows for spec in row.keys for flag in spec.flags}
    known |= {"movablekeys"}
    return {flag for text in texts for flag in flags_tested(text) if flag not in known}


def test_every_flag_that_code_tests_is_the_flag_of_some_command() -> None:
    source = [tree.text(path) for path in tree.code() if path.parts[0] == "src"]
    tested = [flag for text in source for flag in flags_tested(text)]
    assert len(tested) > 10
    assert unknown_flags(source) == set()


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("held = 'may_repeat' in row.flags", {"may_repeat"}),
        ("held = any(flag in row.flags for flag in NAMES)", {"flag"}),
        ("held = 'noscript' not in known.command.flags", set()),
    ],
)
def test_a_flag_that_no_command_has_is_found(fault: str, found: set[str]) -> None:
    assert unknown_flags([fault]) == found
