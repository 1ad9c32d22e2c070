"""The load generator needs a C compiler; without one its tests are skipped."""

from __future__ import annotations

import pytest

from benchmarks import load


@pytest.fixture(scope="session")
def program() -> None:
    """Compile the load generator."""
    try:
        load.program()
    except load.LoadFailed as why:
        if "no C compiler" not in str(why):
            raise
        pytest.skip(str(why))
