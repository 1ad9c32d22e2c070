"""The benchmarks' own program needs a C compiler; without one its tests are skipped."""

from __future__ import annotations

import pytest

from benchmarks import load


@pytest.fixture(scope="session")
def program() -> None:
    """The load generator, compiled."""
    try:
        load.program()
    except load.LoadFailed as why:
        if "no C compiler" not in str(why):
            raise
        pytest.skip(str(why))
