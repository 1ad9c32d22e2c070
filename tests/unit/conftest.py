"""A fixture of the tests that read journals."""

from __future__ import annotations

import pytest

from tests.crash.journal_tools import small_pieces


@pytest.fixture(params=["at once", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journal files are read at once, as small ones are, and in many pieces."""
    if request.param == "in pieces":
        small_pieces(monkeypatch, 100)
