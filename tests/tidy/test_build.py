"""The extensions are compiled from the current sources, and plain Python can always be requested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater._build import HotModule, digest_in, hot_modules, summary

PACKAGE = Path(headwater.__file__).parent


@pytest.mark.parametrize("module", hot_modules(PACKAGE), ids=lambda module: module.name)
def test_an_extension_was_compiled_from_the_current_sources(module: HotModule) -> None:
    if module.extension() is None:
        pytest.skip(f"{module.name} is not compiled here")
    assert module.compiled_digest() == module.digest(), f"{module.name} is stale: make build"


def test_pure_mode_loads_sources_only() -> None:
    # Given every hot module imported with HEADWATER_PURE=1
    names = [module.name for module in hot_modules(PACKAGE)] or ["headwater.model"]
    program = (
        "import sys, importlib\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "for name, module in list(sys.modules.items()):\n"
        "    path = getattr(module, '__file__', None)\n"
        "    if name.startswith('headwater') and path: print(path)\n"
    )
    # When a new interpreter runs the program
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HEADWATER_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    # Then every module of Headwater came from a .py file
    paths = done.stdout.splitlines()
    assert paths
    assert [path for path in paths if not path.endswith(".py")] == []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a hot module, and one that is not hot."""
    package = tmp_path / "headwater"
    (package / "engine").mkdir(parents=True)
    (package / "engine" / "hot.py").write_text("value = 1\n")
    (package / "engine" / "hot.pxd").write_text("cdef int value\n")
    (package / "engine" / "cold.py").write_text("value = 2\n")
    return package


def test_a_module_with_a_pxd_is_hot(package: Path) -> None:
    assert [module.name for module in hot_modules(package)] == ["headwater.engine.hot"]


@pytest.mark.parametrize("edited", ["hot.py", "hot.pxd", "another.pxd"])
def test_an_edit_of_any_compiled_file_changes_the_digest(package: Path, edited: str) -> None:
    (module,) = hot_modules(package)
    before = module.digest()
    with (package / "engine" / edited).open("a") as file:
        file.write("\n")
    assert module.digest() != before


def test_an_extension_of_other_sources_is_stale(package: Path) -> None:
    # Given an extension that contains the digest of the sources
    (module,) = hot_modules(package)
    from importlib.machinery import EXTENSION_SUFFIXES

    extension = module.source.with_suffix(EXTENSION_SUFFIXES[0])
    mark = f"headwater-sources:{module.name}:{module.digest()}".encode()
    extension.write_bytes(b"\x7fELF\0" + mark + b"\0")
    assert digest_in(extension, module.name) == module.digest()
    assert summary([module]) == ("plain" if os.environ.get("HEADWATER_PURE") == "1" else "compiled")
    # When the source is edited
    module.source.write_text("value = 3\n")
    # Then the extension does not match the source
    assert module.compiled_digest() != module.digest()
