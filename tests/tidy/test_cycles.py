"""There are no import cycles; typing imports and cimports count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grimp

from tests.tidy.tree import ROOT, files, text

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


def test_there_is_no_import_cycle() -> None:
    assert [sorted(cycle) for cycle in cycles(imports())] == []


def test_a_cycle_of_typing_imports_and_cimports_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]:
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph) == [{"a", "b", "c"}]
