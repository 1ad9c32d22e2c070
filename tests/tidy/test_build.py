"""The extensions are compiled from the current sources, and plain Python can always be requested."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

import headwater
from headwater._build import HotModule, digest_in, hot_modules, left_over, shared_extension, summary

PACKAGE = Path(headwater.__file__).parent


@pytest.mark.parametrize("module", hot_modules(PACKAGE), ids=lambda module: module.name)
def test_an_extension_was_compiled_from_the_current_sources(module: HotModule) -> None:
    if module.extension() is None:
        pytest.skip(f"{module.name} is not compiled here")
    assert module.compiled_digest() == module.digest(), f"{module.name} is stale: make build"


def test_pure_mode_loads_sources_only() -> None:
    # Given every hot module imported with HEADWATER_PURE=1
    names = [module.name for module in hot_modules(PACKAGE)] or ["headwater.common.model"]
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
    extension = module.source.with_suffix(EXTENSION_SUFFIXES[0])
    mark = f"headwater-sources:{module.name}:{module.digest()}".encode()
    extension.write_bytes(b"\x7fELF\0" + mark + b"\0")
    assert digest_in(extension, module.name) == module.digest()
    assert summary([module]) == ("plain" if os.environ.get("HEADWATER_PURE") == "1" else "compiled")
    # When the source is edited
    module.source.write_text("value = 3\n")
    # Then the extension does not match the source
    assert module.compiled_digest() != module.digest()


def test_an_extension_of_a_module_that_is_not_hot_any_more_is_left_over(package: Path) -> None:
    # Given extensions of two modules, of which one is hot
    extensions = [package / "engine" / f"{name}{EXTENSION_SUFFIXES[0]}" for name in ("hot", "cold")]
    for extension in extensions:
        extension.touch()
    # Then a build removes the other one
    assert left_over(package) == [extensions[1]]


def test_a_wheel_of_the_compiled_package_has_at_most_7_mb_and_20_mb_installed() -> None:
    # Given everything that a wheel contains, compiled
    modules = hot_modules(PACKAGE)
    extensions = [extension for module in modules if (extension := module.extension())]
    if len(extensions) < len(modules):
        pytest.skip("not every hot module is compiled here")
    shared = shared_extension(PACKAGE)
    assert shared is not None
    files = [shared, *extensions] + [
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in {".so", ".c", ".pyc"}
    ]

    # When they are compressed as a wheel is
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as wheel:
        for path in files:
            wheel.write(path, path.relative_to(PACKAGE.parent))

    # Then both sizes stay below their bounds
    assert len(packed.getvalue()) <= 7_000_000
    assert sum(path.stat().st_size for path in files) <= 20_000_000
