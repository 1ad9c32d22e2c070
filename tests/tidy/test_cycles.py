"""There are no import cycles except the listed ones; typing imports and cimports count.

cycles.toml lists the known cycles. A module that joins a cycle fails the test, and so does a listed module
that is no longer in one: the list only shrinks.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from tests.tidy.tree import ROOT, files, text

LISTED = Path(__file__).with_name("cycles.toml")

_CIMPORT = re.compile(r"^\s*from (headwater[\w.]*) cimport (.+)$", re.MULTILINE)


def cimports(pxd: Path) -> Iterator[str]:
    """Yield the modules that a ``.pxd`` cimports from, by dotted name."""
    for source, names in _CIMPORT.findall(text(pxd)):
        yield source
        yield from (f"{source}.{name}" for name in re.findall(r"\w+", names))


def imports() -> grimp.ImportGraph:
    """Return the import graph, typing imports and cimports included."""
    graph = grimp.build_graph("headwater", exclude_type_checking_imports=False, cache_dir=None)
    for pxd in files():
        if pxd.suffix != ".pxd":
            continue
        importer = ".".join(pxd.relative_to("src").with_suffix("").parts)
        for imported in cimports(pxd):
            package = (ROOT / "src" / Path(*imported.split("."))).is_dir()
            if {importer, imported} <= graph.modules and not package:
                graph.add_import(importer=importer, imported=imported)
    return graph


def cycles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the largest sets of modules that import one another, directly or through others."""
    found: list[set[str]] = []
    for module in sorted(graph.modules):
        if any(module in cycle for cycle in found):
            continue
        others = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if others:
            found.append(others | {module})
    return found


@pytest.fixture(scope="module")
def found() -> list[set[str]]:
    return cycles(imports())


@pytest.fixture(scope="module")
def listed() -> list[set[str]]:
    return [set(names) for names in tomllib.loads(LISTED.read_text())["cycles"]]


def test_every_import_cycle_is_listed(found: list[set[str]], listed: list[set[str]]) -> None:
    new = [sorted(cycle) for cycle in found if not any(cycle <= known for known in listed)]
    assert not new, f"import cycles that {LISTED.name} does not list: {new}"


def test_every_listed_module_is_in_a_cycle(found: list[set[str]], listed: list[set[str]]) -> None:
    gone = sorted(set().union(*listed) - set().union(*found))
    assert not gone, (
        f"these modules are no longer in a cycle, remove them from {LISTED.name}: {gone}"
    )


def test_a_cycle_of_typing_imports_and_cimports_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]:
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph) == [{"a", "b", "c"}]
