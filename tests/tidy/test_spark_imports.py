"""Spark's modules have no import cycles, typing imports included.

lint-imports ignores imports under ``if TYPE_CHECKING``. These tests check the contracts of Spark's packages
with those imports.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

from tests.tidy import tree

SPARK = "headwater.spark"


def contracts() -> list[dict[str, Any]]:
    """Return the contracts of Spark's packages from pyproject.toml."""
    linter = tomllib.loads(tree.text(Path("pyproject.toml")))["tool"]["importlinter"]
    return [
        contract
        for contract in linter["contracts"]
        if any(container.startswith(SPARK) for container in contract.get("containers", ()))
    ]


@cache
def graph() -> grimp.ImportGraph:
    """Return the graph of all imports, typing imports included."""
    return grimp.build_graph("headwater", exclude_type_checking_imports=False, cache_dir=None)


def layers(contract: dict[str, Any]) -> list[grimp.Layer]:
    """Return the contract's layers, highest first; ``|`` separates modules that do not import each other."""
    return [
        grimp.Layer(*(name.strip() for name in line.split("|")), independent=True)
        for line in contract["layers"]
    ]


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["containers"][0])
def test_imports_go_down_the_layers(contract: dict[str, Any]) -> None:
    found = graph().find_illegal_dependencies_for_layers(
        layers=layers(contract), containers=set(contract["containers"])
    )
    routes = [(route.importer, route.imported) for route in found]
    assert routes == []


def test_there_is_no_import_cycle() -> None:
    imports = {
        module: graph().find_modules_directly_imported_by(module)
        for module in graph().modules
        if f"{module}.".startswith(f"{SPARK}.")
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in tree.code():
        if path.parts[:3] == ("src", *SPARK.split(".")):
            for node in ast.walk(ast.parse(tree.text(path))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
