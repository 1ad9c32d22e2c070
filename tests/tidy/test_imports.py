"""Importing Headwater loads only what is used, and the command line starts fast."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

HEAVY = ("redis", "asyncio", "rich", "pyspark", "pyarrow", "pydantic", "msgspec", "matplotlib")
HEAVY_FOR_HELP = tuple(name for name in HEAVY if name != "asyncio")

WITHIN_MS = 200


def python(program: str) -> str:
    """Run the program in a new interpreter and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(program: str, names: tuple[str, ...]) -> list[str]:
    """Return which of the modules ``names`` are loaded after the program has run."""
    tail = f"\nimport sys; print(); print(*[n for n in {names!r} if n in sys.modules])"
    return python(program + tail).splitlines()[-1].split()


def test_importing_headwater_loads_nothing_heavy() -> None:
    assert loaded_by("import headwater", HEAVY) == []


def test_help_loads_nothing_heavy() -> None:
    program = (
        "from headwater.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert loaded_by(program, HEAVY_FOR_HELP) == []


def test_every_public_name_resolves_and_is_listed() -> None:
    assert (
        python(
            "import headwater\n"
            "for name in headwater.__all__: getattr(headwater, name)\n"
            "assert set(headwater.__all__) <= set(dir(headwater))"
        )
        == ""
    )


def test_a_wrong_public_name_is_an_attribute_error() -> None:
    import headwater

    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = headwater.conect


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="measured alone: in `make check`")
def test_help_takes_at_most_200_ms() -> None:
    """The best of five runs counts: other work on the machine only makes a run slower."""
    best = min(_help_seconds() for _ in range(5))
    assert best * 1000 < WITHIN_MS, f"headwater --help took {best * 1000:.0f} ms at best"


def _help_seconds() -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", "--help"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    return time.perf_counter() - began
