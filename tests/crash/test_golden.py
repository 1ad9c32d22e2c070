"""Files of every format that was ever written are read, and give the state that was recorded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.engine import replay
from headwater.server.config import Config
from headwater.server.opening import open_node
from tests.crash.golden_history import kinds_in, loaded, state_of

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(path.name for path in GOLDEN.iterdir())
DIRECTORIES = ("stopped", "killed")


@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize("version", FORMATS)
def test_old_files_give_the_recorded_state(version: str, directory: str, tmp_path: Path) -> None:
    # Given a data directory of that format
    shutil.copytree(GOLDEN / version / directory, tmp_path / "data")
    # When it is opened, then it holds what it held
    node = open_node(Config(dir=str(tmp_path / "data")))
    assert state_of(node) == (GOLDEN / version / "state.txt").read_text()
    # And only the torn record of the killed one was cut
    assert node.journal is not None
    assert len(node.journal.recovery.cuts) == (directory == "killed")
    node.close()


@pytest.mark.parametrize("version", FORMATS)
def test_the_old_files_hold_every_kind_of_fact(version: str) -> None:
    assert kinds_in(loaded(GOLDEN / version / "stopped")) == set(replay._STEPS)
