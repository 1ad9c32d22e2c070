"""Rules for the files of the tree: lengths, docstrings, pinned dependencies, contents that are not allowed."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.tidy import tree

FILE_LINES = 600
FUNCTION_LINES = 60

STORE_FILE = re.compile(r"journal-\d+|MANIFEST|(headwater|backup|checkpoint)\.lock")
LOCK_FILES = {
    "Pipfile.lock",
    "pdm.lock",
    "poetry.lock",
    "pylock.toml",
    "requirements.lock",
    "uv.lock",
}

MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|Users|root|work|opt|mnt|srv)/[\w.-]+")
"""Paths that are specific to a machine; /tmp, /usr, /etc and /dev exist on all."""

# Written in parts, so that this file does not match.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b(?![\"'`])")
"""Not the end of a quoted text: these letters are the offset in the pattern of a time."""

ADDRESSES = re.compile(r"https?://|file://|(?<!\w)git\+|@\s*\w+://")
"""Sources of packages other than the index."""


def exceptions() -> dict[str, dict[str, Any]]:
    """Return exceptions.toml: for each kind of length, the names that may be longer."""
    read: dict[str, dict[str, Any]] = tomllib.loads(
        (Path(__file__).parent / "exceptions.toml").read_text(encoding="utf-8")
    )
    return read


def too_long(found: dict[str, int], limit: int, kind: str) -> list[str]:
    """Return a sentence for each length above ``limit`` or its exception, and for each exception that has no
    reason or is not needed."""
    allowed = exceptions()[kind]
    wrong = []
    for name, length in found.items():
        entry = allowed.get(name)
        bound = entry["lines"] if entry else limit
        if length > bound:
            wrong.append(f"{name} has {length} lines, at most {bound} are allowed: split it")
    for name, entry in allowed.items():
        if not entry.get("reason"):
            wrong.append(f"the exception for {name} has no reason")
        if found.get(name, 0) <= limit:
            wrong.append(f"the exception for {name} is no longer needed")
    return wrong


def test_a_file_has_under_600_lines() -> None:
    lengths = {str(path): len(tree.text(path).splitlines()) for path in tree.code()}
    assert too_long(lengths, FILE_LINES - 1, "files") == []


def test_a_function_has_under_60_lines() -> None:
    lengths: dict[str, int] = {}
    for path in tree.code():
        for name, length in tree.functions(path):
            key = f"{path}::{name}"
            lengths[key] = max(length, lengths.get(key, 0))
    assert too_long(lengths, FUNCTION_LINES - 1, "functions") == []


def test_no_file_contains_a_path_of_a_machine() -> None:
    found = [
        f"{path}: {match[0]}"
        for path in tree.files()
        if path.parts[:2] != ("tests", "tidy")
        for match in MACHINE_PATHS.finditer(tree.text(path))
    ]
    assert found == []


def test_no_file_has_a_mark_of_unfinished_work() -> None:
    found = [
        f"{path}: {match[0]}"
        for path in tree.files()
        if path.name != "LICENSE"
        for match in UNFINISHED.finditer(tree.text(path))
    ]
    assert found == [], "finish it, or open an issue and remove the mark"


def test_there_is_no_lock_file() -> None:
    assert [str(path) for path in tree.files() if path.name in LOCK_FILES] == []


def test_no_test_has_left_a_store_in_the_repository() -> None:
    """A server without a directory of its own writes to the one it was started in."""
    found = [path for path in tree.files() if STORE_FILE.fullmatch(path.name)]
    assert [str(path) for path in found if "golden" not in path.parts] == []


def test_constraints_name_versions_and_no_addresses() -> None:
    # Given the constraints without comments
    text = tree.text(Path("constraints.txt"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    # Then each is one exact version and nothing else
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert ADDRESSES.search(text) is None


def test_every_dependency_is_pinned() -> None:
    # Given every distribution that pyproject.toml names
    project = tomllib.loads(tree.text(Path("pyproject.toml")))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {re.split(r"[\[<>=~!; ]", requirement)[0].lower() for requirement in wanted}
    # Then the constraints have a version of each
    pinned = {
        line.split("==")[0].lower()
        for line in tree.text(Path("constraints.txt")).splitlines()
        if "==" in line
    }
    assert names - pinned - {project["name"]} == set()  # an extra may include another one


@pytest.mark.parametrize("path", tree.code(), ids=str)
def test_a_module_has_a_docstring(path: Path) -> None:
    module = ast.parse(tree.text(path))
    if module.body:
        assert ast.get_docstring(module), f"{path} has no docstring"
