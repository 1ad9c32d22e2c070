"""Files of every format ever written can be read and result in the recorded state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headwater.client.sync.connect import connect
from headwater.config.config import Config
from headwater.engine.image.image_facts import IMAGE_KINDS
from headwater.journal.format.checksum import LOCAL_KIND
from headwater.persistence.dumping import KINDS
from headwater.server.opening import open_node
from tests.crash.golden_history import kinds_in, loaded, state_of

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(path.name for path in GOLDEN.iterdir())
DIRECTORIES = ("stopped", "killed")
JOURNALS = ("format-1", "format-2")
"""Directories without an image and segments, and so without the fact ``stored``."""
IN_VALUES = {0x60, 0x61, 0x62}
"""The kinds of changes within strings and lists, which only the last directory has."""


@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize("version", FORMATS)
def test_old_files_give_the_recorded_state(version: str, directory: str, tmp_path: Path) -> None:
    # Given a data directory of that format
    shutil.copytree(GOLDEN / version / directory, tmp_path / "data")
    # When it is opened, then it has the recorded state
    node = open_node(Config(dir=str(tmp_path / "data")))
    assert state_of(node) == (GOLDEN / version / "state.txt").read_text()
    # And only the torn record of the killed process was cut off
    assert node.journal is not None
    assert len(node.journal.recovery.cuts) == (directory == "killed")
    node.close()


@pytest.mark.slow
@pytest.mark.parametrize("version", FORMATS)
def test_a_store_with_old_files_can_be_written(version: str, tmp_path: Path) -> None:
    # Given a store of that format that is written to beyond the end of its file and crashes
    shutil.copytree(GOLDEN / version / "killed", tmp_path / "data")
    files = loaded(tmp_path / "data")
    node = open_node(Config(appendfsync="always"), files=files)
    with connect(node=node) as client:
        for number in range(50):
            client.xadd("more", {"number": number})
    written = state_of(node)
    (image,) = files.crash_images(seed=0, count=1)
    # When it is opened again, then it has what was written
    again = open_node(Config(), files=image)
    assert state_of(again) == written
    assert again.journal is not None
    assert again.journal.recovery.report().cuts == ()
    again.close()


@pytest.mark.parametrize("version", FORMATS)
def test_the_old_files_hold_every_kind_of_fact(version: str) -> None:
    found = kinds_in(loaded(GOLDEN / version / "stopped"))
    if version in JOURNALS:
        assert found == KINDS.keys() - {LOCAL_KIND} - IN_VALUES
    else:
        assert found >= KINDS.keys() - ({*IN_VALUES} if version == "format-2-segments" else set())
        assert found - KINDS.keys() == IMAGE_KINDS


@pytest.mark.parametrize("version", [one for one in FORMATS if one not in JOURNALS])
def test_the_files_with_an_image_have_every_kind_of_file_and_are_small(version: str) -> None:
    for directory in DIRECTORIES:
        names = [path.name for path in (GOLDEN / version / directory).iterdir()]
        for kind in ("MANIFEST", "journal-", "image-", "segment-"):
            assert any(name.startswith(kind) for name in names)
    files = [path for path in (GOLDEN / version).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000
