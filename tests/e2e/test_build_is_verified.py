"""`make build` fails if a hot module does not compile, although an installation may be plain Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = "def twice(number: int) -> int:\n    return 2 * number\n"

# Cython accepts it but the C compiler does not; setup.py then silently leaves the module plain.
REFUSED_BY_C = (
    'cdef extern from "no_such_header_at_all.h":\n    int nothing\n\ncpdef int twice(int number)\n'
)
REFUSED_BY_CYTHON = "cdef class nothing that Cython knows\n"

pytestmark = pytest.mark.slow


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The project's build files with a package of two hot modules."""
    for name in ("Makefile", "setup.py", "pyproject.toml", "constraints.txt", "tools/built.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    package = tmp_path / "src" / "headwater"
    (package / "engine").mkdir(parents=True)
    shutil.copy2(ROOT / "src" / "headwater" / "_build.py", package)
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text('__version__ = "0"\n')
    (package / "engine" / "__init__.py").write_text("")
    for name in ("good", "other"):
        (package / "engine" / f"{name}.py").write_text(GOOD)
        (package / "engine" / f"{name}.pxd").write_text("cpdef int twice(int number)\n")
    return tmp_path


def build(tree: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run ``make build`` in ``tree``, with this run's interpreter and libraries."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"CI", "CI_PEERS_REQUIRED", "HEADWATER_PURE", "MAKEFLAGS", "MFLAGS"}
    }
    # Whether a module compiles does not depend on how well
    environment = {**environment, "CFLAGS": "-O0 -w", "PYTHONPATH": str(tree / "src"), **changes}
    stamp = tree / "venv" / ".installed"
    stamp.parent.mkdir(exist_ok=True)
    stamp.touch()
    words = [f"PY={sys.executable}", "BIN=true ", f"VENV={stamp.parent}"]
    return subprocess.run(
        ["make", "build", *words],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_build_that_compiled_everything_passes(tree: Path) -> None:
    done = build(tree, CI_PEERS_REQUIRED="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*tree.rglob("*.so")]) == 6  # in build/ and in src/, with the one that both import


@pytest.mark.parametrize("broken", [REFUSED_BY_C, REFUSED_BY_CYTHON], ids=["C", "Cython"])
def test_a_module_that_does_not_compile_fails_the_build_and_is_named(
    tree: Path, broken: str
) -> None:
    # Given one of the two hot modules that cannot be compiled
    (tree / "src" / "headwater" / "engine" / "other.pxd").write_text(broken)
    # When the project is built
    done = build(tree)
    # Then the build fails and names the module
    assert done.returncode != 0, done.stdout
    assert "other" in done.stdout + done.stderr
    if broken is REFUSED_BY_C:
        assert "1 of 2 hot modules are not compiled: headwater.engine.other" in done.stderr


def test_a_broken_edit_fails_the_next_build(tree: Path) -> None:
    # Given a successful build
    assert build(tree).returncode == 0
    # When a module does not compile any more
    (tree / "src" / "headwater" / "engine" / "other.pxd").write_text(REFUSED_BY_C)
    # Then the old extension does not hide the failure
    done = build(tree)
    assert done.returncode != 0
    assert "headwater.engine.other" in done.stderr


@pytest.mark.parametrize(
    ("changes", "passes"),
    [({}, True), ({"CI_PEERS_REQUIRED": "1"}, False), ({"CI": "true"}, False)],
    ids=["at home", "peers required", "CI"],
)
def test_without_a_compiler_plain_python_passes_except_in_ci(
    tree: Path, changes: dict[str, str], passes: bool
) -> None:
    done = build(tree, CC="/nonexistent/cc", **changes)
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    assert [*tree.rglob("*.so")] == []
    if not passes:
        assert "2 of 2 hot modules are not compiled" in done.stderr
        assert "CI needs a C compiler" in done.stderr


def test_ci_does_not_accept_an_earlier_plain_build(tree: Path) -> None:
    # Given a finished build without a compiler
    assert build(tree, CC="/nonexistent/cc").returncode == 0
    # When CI builds in the same tree, then it fails
    assert build(tree, CC="/nonexistent/cc", CI_PEERS_REQUIRED="1").returncode != 0


def test_a_requested_plain_build_passes_except_in_ci(tree: Path) -> None:
    assert build(tree, HEADWATER_PURE="1").returncode == 0
    assert build(tree, HEADWATER_PURE="1", CI_PEERS_REQUIRED="1").returncode != 0
