"""Every ``.pxd`` declares the attributes that its ``.py`` assigns: a compiled object has no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "headwater"
HOT = sorted(path for path in PACKAGE.rglob("*.pxd") if path.with_suffix(".py").exists())
"""Without the C counterparts of functions (``memory_c.pxd``), which have no attributes."""

_CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:")
_ATTRIBUTES = re.compile(r"^    cdef (?:public |readonly )?[\w :\[\].]+ (\w+(?:, \w+)*)$")


def imported(text: str, name: str, ending: str) -> Path | None:
    """Return the file that ``name`` is imported from, if that is another module of the package."""
    word = "cimport" if ending == ".pxd" else "import"
    found = re.search(rf"^from headwater\.([\w.]+) {word} (?:.*\b)?{name}\b", text, re.MULTILINE)
    return found and (PACKAGE / found[1].replace(".", "/")).with_suffix(ending)


def declared(text: str) -> dict[str, set[str]]:
    """Return class → attributes, its base's included, as declared in a ``.pxd``."""
    found: dict[str, set[str]] = {}
    current = ""
    for line in text.splitlines():
        if match := _CLASS.match(line):
            current, base = match[1], match[2] or ""
            inherited = found.get(base, set())
            if base and base not in found and (origin := imported(text, base, ".pxd")):
                inherited = declared(origin.read_text())[base]
            found[current] = set(inherited)
        elif not line.startswith(" "):
            current = "" if line.strip() else current
        elif current and "(" not in line and (match := _ATTRIBUTES.match(line)):
            found[current].update(name.strip() for name in match[1].split(","))
            found[current].discard("__weakref__")  # managed by Python
    return found


def own(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class annotates without a value, or assigns on ``self``."""
    annotated = {
        line.target.id
        for line in node.body
        if isinstance(line, ast.AnnAssign) and not line.value and isinstance(line.target, ast.Name)
    }
    return annotated | {
        target.attr
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }


def kept(source: str) -> dict[str, set[str]]:
    """Return class → attributes, its base's included, as assigned in the source."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = own(node)
            for base in (base.id for base in node.bases if isinstance(base, ast.Name)):
                if base not in found and (origin := imported(source, base, ".py")):
                    found[node.name] |= kept(origin.read_text()).get(base, set())
                found[node.name] |= found.get(base, set())
    return found


@pytest.mark.parametrize("path", HOT, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_compiled_class_has_the_attributes_of_its_source(path: Path) -> None:
    # Given the attributes in the source and in the declarations
    classes = declared(path.read_text())
    source = kept(path.with_suffix(".py").read_text())

    # Then they agree, class by class
    assert {name: source.get(name) for name in classes} == classes
