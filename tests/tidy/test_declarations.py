"""Every ``.pxd`` declares what its ``.py`` keeps: a compiled object has no other attributes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "headwater"
HOT = sorted(path for path in PACKAGE.rglob("*.pxd") if path.with_suffix(".py").exists())
"""Without the twins in C of functions (``memory_c.pxd``), which keep nothing."""

_CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:")
_ATTRIBUTES = re.compile(r"^    cdef (?:public |readonly )?[\w :\[\].]+ (\w+(?:, \w+)*)$")


def declared(text: str) -> dict[str, set[str]]:
    """Class → attributes, its base's included, as a ``.pxd`` declares them."""
    found: dict[str, set[str]] = {}
    current = ""
    for line in text.splitlines():
        if match := _CLASS.match(line):
            current = match[1]
            found[current] = set(found.get(match[2] or "", ()))
        elif not line.startswith(" "):
            current = "" if line.strip() else current
        elif current and "(" not in line and (match := _ATTRIBUTES.match(line)):
            found[current].update(name.strip() for name in match[1].split(","))
            found[current].discard("__weakref__")  # the object's own, kept by Python
    return found


def kept(source: str) -> dict[str, set[str]]:
    """Class → attributes that its methods, or its base's, assign on ``self``."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            found[node.name] = {name for base in bases for name in found.get(base, ())}
            found[node.name] |= {
                target.attr
                for target in ast.walk(node)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
    return found


@pytest.mark.parametrize("path", HOT, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_compiled_class_has_the_attributes_of_its_source(path: Path) -> None:
    # Given what the source assigns and what the declarations say
    classes = declared(path.read_text())
    source = kept(path.with_suffix(".py").read_text())

    # Then they agree, class by class
    assert {name: source.get(name) for name in classes} == classes
