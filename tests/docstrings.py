"""Runs the examples of docstrings: ``python -m tests.docstrings`` prints those that fail.

The examples are read from the sources, to include classes that set ``__module__`` to another module. The
modules are imported as plain Python: a compiled module lacks names that only its annotations use.
"""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACES = {"src": ROOT / "src", "tools": ROOT}
"""Folder → the directory from which its modules are imported."""

_EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)


def modules() -> Iterator[tuple[str, Path]]:
    """Yield name and path of each module with an example."""
    for folder, root in PLACES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if _EXAMPLE.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(root).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def examples(name: str, path: Path) -> Iterator[doctest.DocTest]:
    """Yield the examples of a module, one `DocTest` per docstring."""
    names = vars(import_module(name))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text and _EXAMPLE.search(text):
            of = "" if isinstance(node, ast.Module) else f".{node.name}"
            line = 0 if isinstance(node, ast.Module) else node.lineno
            yield doctest.DocTestParser().get_doctest(
                text, dict(names), f"{name}{of}", str(path), line
            )


def main() -> None:
    """Run all examples. The last line of the output gives their number."""
    runner = doctest.DocTestRunner(verbose=False)
    for name, path in modules():
        for one in examples(name, path):
            runner.run(one)
    print(f"{runner.tries} examples, {runner.failures} failed")


if __name__ == "__main__":
    main()
