"""Where the package zstandard is missing, a store written with zstd is refused by its name: it is not damaged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import headwater
from headwater.engine.bodies import codecs
from headwater.errors import StoreUnusable
from tests.waiting import eventually

Run = Callable[..., str]

REASON = "zstd needs the package zstandard: pip install zstandard; nothing is damaged"


def _has_segment(directory: Path) -> bool:
    return any(directory.glob("segment-*"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stores with compressed entries: that the journal names, that an image names, and that only a past names."""
    path = tmp_path_factory.mktemp("written")
    for kind in ("journal", "image", "past"):
        directory = path / kind
        with headwater.connect(f"headwater://{directory}?journal-retention=1h") as client:
            client.config_set("stream-compression", "zstd")
            client.config_set("stream-hot-bytes", 0)
            for n in range(300):
                client.xadd("s", {"n": n, "text": "x" * 1000})
            eventually(partial(_has_segment, directory))
            client.xadd("s", {"n": 300})
            if kind != "journal":
                client.execute_command("SAVE")
            if kind == "past":
                client.delete("s")
                client.execute_command("SAVE")
    return {one.name: one for one in path.iterdir()}


@pytest.fixture
def without_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "has_zstd", lambda: False)


def files(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in directory.iterdir() if one.suffix != ".lock"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "image"])
@pytest.mark.usefixtures("without_zstd")
def test_a_start_a_check_and_a_repair_name_the_package_and_call_nothing_damaged(
    written: dict[str, Path], tmp_path: Path, run_headwater: Run, kind: str
) -> None:
    # Given a store with entries that are compressed with a package which is missing
    directory, before = written[kind], files(written[kind])
    # When it is opened, then the error names the package
    with pytest.raises(StoreUnusable, match=f"{kind}-[0-9]+ .*{REASON}"):
        headwater.connect(f"headwater://{directory}")
    # And the commands that look for damage say the same
    new = tmp_path / "new"
    for words in (
        ("check", str(directory)),
        ("repair", str(directory), "--to", str(new), "--yes"),
        ("repair", str(directory), "--to", str(new), "--dry-run"),
        ("journal", "dump", str(directory)),
    ):
        said = run_headwater(*words, status=1)
        assert REASON in said
        assert "is damaged at" not in said
        assert "Restore" not in said
    assert not new.exists()
    assert files(directory) == before


@pytest.mark.usefixtures("without_zstd")
def test_a_store_of_which_only_the_past_needs_the_package_opens(
    written: dict[str, Path], tmp_path: Path, run_headwater: Run
) -> None:
    # Given a store whose compressed entries were deleted
    directory = tmp_path / "data"
    shutil.copytree(written["past"], directory)
    # When its past is read, then the package is named
    assert REASON in run_headwater("check", str(directory), status=1)
    # And when it is opened, then it works
    with headwater.connect(f"headwater://{directory}") as client:
        assert client.xadd("s", {"n": 1}) is not None


def test_the_past_in_a_journal_is_checked_without_the_package(
    written: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headwater: Run
) -> None:
    # Given a store that keeps a journal which names compressed entries, and whose image has none of them
    directory = tmp_path / "data"
    shutil.copytree(written["journal"], directory)
    with headwater.connect(f"headwater://{directory}?journal-retention=1h") as client:
        client.delete("s")
        client.execute_command("SAVE")
    monkeypatch.setattr(codecs, "has_zstd", lambda: False)
    # When it is checked, then it is healthy, because a checksum is verified without the package
    assert "healthy" in run_headwater("check", str(directory))
    # And a flipped bit in such an entry is found
    path = directory / "segment-000001"
    content = bytearray(path.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= 1
    path.write_bytes(content)
    assert "segment-000001" in run_headwater("check", str(directory), status=3)


def test_a_package_that_cannot_be_imported_is_missing(tmp_path: Path) -> None:
    # Given a package that was built for another Python
    (tmp_path / "zstandard.py").write_text("raise ImportError('wrong ELF class')", "utf-8")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from headwater.engine.bodies.codecs import make_codec\n"
        "print(make_codec('auto').name)\n"
        "make_codec('zstd')"
    )
    # When a codec is chosen, then it is another one, and this one is refused by the name of the package
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "zlib\n"
    assert done.stderr.splitlines()[-1].endswith("pip install zstandard")
