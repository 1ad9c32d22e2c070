"""Each public class has a unique name, so that a search for it finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.tidy import tree


def test_no_two_modules_define_a_public_class_of_the_same_name() -> None:
    # Given the public classes of each module of the package
    places: dict[str, list[str]] = defaultdict(list)
    for path in tree.code():
        if path.parts[0] == "src" and path.suffix == ".py":
            for node in ast.parse(tree.text(path)).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path))

    # Then each name is defined once
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
