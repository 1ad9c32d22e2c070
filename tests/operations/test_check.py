"""`headwater check` reads every file of a store, and says what is damaged."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.common.model import StreamID
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import DiskFiles
from headwater.journal.format.manifest import read_manifest
from headwater.persistence.checking import StoreCheck, check_store
from headwater.persistence.history import entry_history
from headwater.testing.server import server_process
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Run = Callable[..., str]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store of which a part is on disk, an image was written, and a journal follows."""
    path = tmp_path / "data"
    with server_process("--stream-hot-bytes", "64kb") as server:
        with redis.Redis.from_url(server.url) as client:
            for n in range(4_000):
                client.xadd("orders", {"n": n, "text": "x" * 200})
            client.xgroup_create("orders", "g", "0")
            client.xreadgroup("g", "c", {"orders": ">"}, count=10)
            client.execute_command("SAVE")
            client.xadd("after", {"n": 1})
        server.stop()
        shutil.copytree(server.data, path)
    return path


def files(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in directory.iterdir() if one.suffix != ".lock"}


def test_a_whole_store_is_healthy_and_not_changed(directory: Path, run_headwater: Run) -> None:
    before = files(directory)
    assert "2 streams with 4,001 entries" in run_headwater("check", str(directory))
    (found,) = json.loads(run_headwater("check", str(directory), "-o", "json"))
    assert (found["healthy"], found["entries"], found["faults"]) == (True, 4_001, [])
    assert files(directory) == before


@pytest.mark.parametrize("kind", ["journal", "image", "segment"])
def test_a_flipped_bit_is_found_in_every_kind_of_file(
    directory: Path, run_headwater: Run, kind: str
) -> None:
    # Given a flipped bit in the middle of what a file contains
    path = min(one for one in directory.iterdir() if one.name.startswith(kind))
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    data[used // 2] ^= 4
    path.write_bytes(data)
    before = files(directory)
    # Then check says so, with the name of the file, and changes nothing
    printed = run_headwater("check", str(directory), status=3)
    assert "damaged" in printed.splitlines()[0]
    assert path.name in printed
    if kind == "segment":
        assert "stream orders" in printed or "nothing is lost yet" in printed
    assert files(directory) == before


def test_a_directory_in_use_or_without_a_store_is_an_error(
    tmp_path: Path, directory: Path, run_headwater: Run
) -> None:
    with headwater.connect(f"headwater://{directory}"):
        assert "is in use by" in run_headwater("check", str(directory), status=1)
    assert "there is no directory" in run_headwater("check", str(tmp_path / "none"), status=1)
    (tmp_path / "empty").mkdir()
    assert "has no store" in run_headwater("check", str(tmp_path / "empty"), status=1)


# --- what journal-retention keeps ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store that keeps three pasts, with entries on disk that were trimmed since; and a moment of each past."""
    path = tmp_path_factory.mktemp("kept") / "data"
    with server_process(
        *("--journal-retention", "1h", "--stream-hot-bytes", "16kb", "--save", "")
    ) as server:
        with redis.Redis.from_url(server.url) as client:
            moments = []
            for number in range(3):
                if number == 2:  # the segment that is being written is never given up
                    server.stop()
                    server.start()
                pipe = client.pipeline(transaction=False)
                for n in range(number * 600 + 1, number * 600 + 601):
                    pipe.xadd("s", {"text": os.urandom(100)}, id=f"{n}-1")
                pipe.execute()
                now: Any = client.time()
                moments.append(now[0] * 1000 + now[1] // 1000)
                time.sleep(0.005)  # the next change has a later time
                client.xtrim("s", minid=f"{number * 600 + 500}-0", approximate=False)
                if number == 2:
                    client.delete("s")
                client.bgrewriteaof()
                eventually((server.data / f"manifest-{number:06}").exists)
                eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
            eventually((server.data / "unneeded").exists)
            client.xadd("t", {"n": 1})
        server.stop()
        shutil.copytree(server.data, path)
    return path, moments


@pytest.fixture
def copy(kept: tuple[Path, list[int]], tmp_path: Path) -> Path:
    shutil.copytree(kept[0], tmp_path / "data")
    return tmp_path / "data"


def kept_files(directory: Path) -> list[Path]:
    """Return the files that MANIFEST does not name."""
    manifest = read_manifest(DiskFiles(directory))
    assert manifest is not None
    assert manifest.image is not None
    current = {"MANIFEST", f"image-{manifest.image.number:06}"}
    current |= {f"journal-{number:06}" for number in range(manifest.first, manifest.last + 1)}
    return sorted(
        one for one in directory.iterdir() if one.name not in current and one.suffix != ".lock"
    )


def checked(directory: Path) -> tuple[StoreCheck, str]:
    """Check a store. Return the result, and everything that it says of the past."""
    found = check_store(DiskFiles(directory))
    return found, "\n".join([*found.past, *found.weakened, *found.notes])


def test_a_flipped_bit_in_any_file_that_is_kept_is_named(
    copy: Path, kept: tuple[Path, list[int]]
) -> None:
    assert checked(copy)[0].healthy
    files = kept_files(copy)
    kinds = {one.name.partition("-")[0] for one in files}
    assert kinds == {"image", "journal", "manifest", "segment", "unneeded"}
    chance, in_segments = random.Random(7), 0
    for path in files:
        content = path.read_bytes()
        used = len(content.rstrip(b"\0"))
        # The header of a segment says nothing that is needed, and a blob may have lost its last entry before it was recorded.
        first = 64 if path.name.startswith("segment") else 0
        seen = 0
        places = [first, used // 2, used - 1, *(chance.randrange(first, used) for _ in range(5))]
        for at in places:
            # Given a flipped bit in a file that only the past needs
            flipped = bytearray(content)
            flipped[at] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            # When the store is checked
            found, said = checked(copy)
            # Then the file is named with the place, and the current state is sound
            seen += path.name in said
            assert found.sound or path.name == "unneeded"
            assert found.healthy is (path.name not in said)
            assert path.name not in said or "offset" in said or "line" in said
        if path.name.startswith("segment"):
            in_segments += seen
        else:
            assert seen == len(places), path
        path.write_bytes(content)
    assert in_segments > 2
    assert checked(copy)[0].healthy


def test_a_removed_file_of_a_past_is_named(copy: Path, kept: tuple[Path, list[int]]) -> None:
    named = []
    for path in kept_files(copy):
        # Given a store without a file that only the past needs
        content = path.read_bytes()
        path.unlink()
        # When it is checked
        found, said = checked(copy)
        # Then the file is named; only segments are kept for longer without their list
        assert found.sound
        if f"{path} is missing" in said:
            named.append(path.name)
            assert found.healthy is (path.name == "unneeded")
        elif (
            path.name == "manifest-000000"
        ):  # a crash while the oldest past is removed leaves the same
            assert f"or {path} was deleted" in said
        else:  # all entries in it were deleted before their place was recorded: no past refers to it
            assert path.name.startswith("segment")
        path.write_bytes(content)
    assert "segment-000001" in named


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("image-000001", 1),
        ("journal-000001", 0),
        ("journal-000002", 1),
        ("manifest-000000", 0),
    ],
)
def test_a_moment_whose_files_are_missing_is_refused_by_their_names(
    copy: Path, kept: tuple[Path, list[int]], run_headwater: Run, name: str, moment: int
) -> None:
    # Given a past that lacks a file, and none before it
    for number in range(moment):
        (copy / f"manifest-{number:06}").unlink()
    for path in copy.glob("journal-*"):
        if int(path.name[-6:]) <= moment:
            path.unlink(missing_ok=path.name == name)
    (copy / name).unlink(missing_ok=True)
    at_ms = str(kept[1][moment])
    # When it is read as it was then, then the file is named
    target = copy.parent / "target"
    words = ("restore", str(copy), "--to", str(target), "--at", at_ms)
    said = run_headwater(*words, status=1)
    assert "cannot be read as it was at" in said
    found = "was deleted" if name.startswith("manifest") else "is missing"
    assert f"{copy / name} {found}" in said
    assert "its history begins at" not in said
    with pytest.raises(StoreUnusable, match=f"{name} {found}"):
        headwater.connect(f"headwater://{copy}?at={at_ms}")


def test_check_says_what_is_affected_and_how_to_go_on_without_it(
    copy: Path, kept: tuple[Path, list[int]], run_headwater: Run
) -> None:
    # Given damage in the journal of the second past
    path = copy / "journal-000002"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    # When the store is checked
    said = run_headwater("check", str(copy), status=3)
    (document,) = json.loads(run_headwater("check", str(copy), "-o", "json", status=3))
    # Then it says that the current state is healthy, until when the history is not, and which files to remove
    first = said.splitlines()[0]
    assert "the current state is healthy; the history before " in first
    assert (document["healthy"], document["sound"]) == (False, True)
    assert document["past_until"] in first
    assert f"{path} is damaged at offset" in said
    assert "MANIFEST" not in said  # whose repair would discard the current state
    for words in (("journal", "verify"), ("journal", "dump")):
        refused = run_headwater(*words, str(copy), status=1)
        assert f"{path} is damaged at offset" in refused
        assert "Only the history is affected: `headwater check` says how" in refused
    assert "remove manifest-000000 manifest-000001 there, and start the store" in said
    # And that helps: the rest of the history is there, and nothing else is left
    for name in ("manifest-000000", "manifest-000001"):
        (copy / name).unlink()
    with headwater.connect(f"headwater://{copy}?journal-retention=1h"):
        pass
    assert "healthy" in run_headwater("check", str(copy))
    assert not path.exists()
    with headwater.connect(f"headwater://{copy}?at={kept[1][2]}") as past:
        assert past.xlen("s") > 0
    assert entry_history(DiskFiles(copy), b"s", StreamID(1_700, 1)).events


def test_what_a_crash_leaves_of_a_removed_past_is_not_damage(directory: Path) -> None:
    # Given an image and a journal file that were replaced, and not removed any more, in a store that keeps no past
    manifest = read_manifest(DiskFiles(directory))
    assert manifest is not None
    assert manifest.image is not None
    before = directory / f"image-{manifest.image.number - 1:06}"
    before.write_bytes(b"")
    (directory / f"journal-{manifest.first - 1:06}").write_bytes(b"")
    # When it is checked, then it is healthy
    found, said = checked(directory)
    assert found.healthy
    assert not found.past
    assert "is left of a past that was removed" in said
