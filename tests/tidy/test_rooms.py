"""Rooms: a package has few modules, a module has a subject of its own, a class has few parts, and the whole has a budget."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from tests.tidy import tree
from tests.tidy.test_cycles import imports
from tests.tidy.test_tidy import exceptions

MODULES = 20
"""Modules of a package; more than that have rooms."""

ONE_IDEA = {"headwater.commands", "headwater.server.commands", "headwater.cli"}
"""Packages with a file for each command."""

ATTRIBUTES = 20
PARAMETERS = 8
SMALL_LINES = 130

BUDGET = 122_600
"""Lines of `src`: Python, .pxd and Lua. Raising it needs an ADR that says what was bought."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return imports()


def sources() -> list[Path]:
    """Return the Python files of the package."""
    return [path for path in tree.code() if path.parts[:2] == ("src", "headwater")]


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    return ".".join(path.relative_to("src").with_suffix("").parts)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield each class with its place, declarations aside: classes that have nothing but fields."""
    for path in sources():
        for node in ast.walk(ast.parse(tree.text(path))):
            if isinstance(node, ast.ClassDef):
                yield f"{path}::{node.name}", node


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that methods of a class assign to ``self``."""
    found = set()
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in ast.walk(method):
                if not isinstance(one, ast.Attribute) or not isinstance(one.ctx, ast.Store):
                    continue
                if isinstance(one.value, ast.Name) and one.value.id == "self":
                    found.add(one.attr)
    return found


def parameters(node: ast.ClassDef) -> int:
    """Return how many parameters the constructor of a class has, without ``self``."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            arguments = method.args
            return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1
    return 0


def unexplained(found: dict[str, int], kind: str) -> list[str]:
    """Return the names that have no reason in exceptions.toml, and the reasons that are not needed any more."""
    allowed = exceptions()[kind]
    wrong = [f"{name} ({size})" for name, size in found.items() if name not in allowed]
    wrong += [f"the exception for {name} is no longer needed" for name in allowed.keys() - found]
    return wrong + [
        f"the exception for {name} has no reason" for name in allowed if not allowed[name]
    ]


def test_a_class_has_at_most_20_attributes() -> None:
    found = {name: len(attributes(node)) for name, node in classes()}
    assert {name: size for name, size in found.items() if size > ATTRIBUTES} == {}


def test_a_constructor_has_at_most_8_parameters_or_is_a_declaration() -> None:
    found = {name: parameters(node) for name, node in classes()}
    assert (
        unexplained({n: size for n, size in found.items() if size > PARAMETERS}, "constructors")
        == []
    )


def test_a_package_has_few_modules_or_rooms() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for path in sources():
        if path.name != "__init__.py":
            sizes[module_of(path).rpartition(".")[0]] += 1
    large = {name: size for name, size in sizes.items() if size > MODULES and name not in ONE_IDEA}
    assert unexplained(large, "packages") == []


def test_a_package_says_what_it_promises() -> None:
    inits = [path for path in sources() if path.name == "__init__.py"]
    silent = [str(path) for path in inits if not ast.get_docstring(ast.parse(tree.text(path)))]
    assert silent == []
    rooms = {path.parent for path in sources()} - {path.parent for path in inits}
    assert rooms == set()


def test_a_small_module_has_several_importers_or_a_reason(graph: grimp.ImportGraph) -> None:
    small = {}
    for path in sources():
        module = module_of(path)
        lines = len(tree.text(path).splitlines())
        if path.name in ("__init__.py", "__main__.py") or lines >= SMALL_LINES:
            continue
        room = module.rpartition(".")[0]
        importers = graph.find_modules_that_directly_import(module) - {room}
        if len(importers) == 1 and next(iter(importers)).rpartition(".")[0] == room:
            small[str(path)] = lines
    assert unexplained(small, "small") == []


def test_the_package_keeps_its_budget_of_lines() -> None:
    lines = sum(
        len(tree.text(path).splitlines())
        for path in tree.files()
        if path.parts[0] == "src" and path.suffix in (".py", ".pxd", ".lua")
    )
    assert lines <= BUDGET, (
        f"src has {lines} lines: look for a mechanism that exists before you add one"
    )
