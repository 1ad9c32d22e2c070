"""The project's files, for the tests that check the whole tree."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

CODE_DIRECTORIES = ("src", "tests", "benchmarks", "tools")

_SKIPPED = {".git", ".venv", ".peers", "build", "dist", "__pycache__", "node_modules"}


@cache
def files() -> list[Path]:
    """Return every file that git tracks or would track, relative to the root; without git (in a source
    distribution), every file outside of caches."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        found = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
        return sorted(path for path in found if not _SKIPPED & set(path.parts))
    names = sorted({Path(name) for name in done.stdout.split("\0") if name})
    return [name for name in names if (ROOT / name).is_file()]


def code() -> list[Path]:
    """Return the Python files, relative to the root."""
    return [path for path in files() if path.suffix == ".py" and path.parts[0] in CODE_DIRECTORIES]


def text(path: Path) -> str:
    """Return the content of one of `files`; invalid UTF-8 is replaced."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the dotted name and the length in lines of every function, without decorators and docstring."""
    yield from _functions(ast.parse(text(path)), "")


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", _length(child)
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines from ``def`` to the end, without the docstring."""
    assert function.end_lineno is not None
    length = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None and first.end_lineno is not None:
        length -= first.end_lineno - first.lineno + 1
    return length
