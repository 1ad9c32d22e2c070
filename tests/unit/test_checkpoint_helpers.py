"""What a store with a directory does before and after it starts a helper process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.journal.format.manifest import ImageEntry
from headwater.persistence import digest
from headwater.persistence.order import (
    BuiltImage,
    CheckpointFailed,
    decode_report,
    encode_report,
)
from tests.waiting import eventually


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with headwater.connect(f"headwater://{tmp_path / 'data'}") as client:
        yield client


def field(store: redis.Redis, name: str) -> Any:
    """Return a field of INFO persistence."""
    found: Any = store.info("persistence")
    return found[name]


@pytest.mark.slow
def test_the_digest_is_that_of_the_sources_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a package, and a process that has taken no digest
    package = tmp_path / "headwater"
    for part in digest._PARTS:
        shutil.copytree(digest._PACKAGE / part, package / part)
    monkeypatch.setattr(digest, "_PACKAGE", package)
    digest.source_digest.cache_clear()
    # When a store is opened, and the package is upgraded before the first checkpoint
    with headwater.connect(f"headwater://{tmp_path / 'data'}") as store:
        store.ping()
        with (package / "engine" / "stream.py").open("a") as file:
            file.write("# another version\n")
        found = digest.source_digest()
    # Then the digest is the earlier one, which a helper of the new version refuses
    digest.source_digest.cache_clear()
    assert found != digest.source_digest()
    digest.source_digest.cache_clear()


def test_the_digest_covers_everything_that_a_helper_imports() -> None:
    program = "import sys, headwater.persistence.helper; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names = [name.split(".") for name in done.stdout.split() if name.startswith("headwater.")]
    packages = {name[1] for name in names if (digest._PACKAGE / name[1]).is_dir()}
    assert packages <= {*digest._PARTS}
    assert len(packages) > 3


def test_a_thread_that_cannot_be_started_costs_only_the_image(
    store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a system that allows no more threads
    store.set("key", "value")
    with monkeypatch.context() as patches:

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patches.setattr(threading.Thread, "start", refuse)
        # When a checkpoint is requested, then it fails, and the store goes on
        store.bgrewriteaof()
        store.set("key", "later")
    assert field(store, "aof_last_bgrewrite_status") == "err"
    # And the next one succeeds
    store.bgrewriteaof()
    eventually(lambda: field(store, "rdb_saves") == 1)
    assert store.get("key") == b"later"


def test_a_report_is_found_among_what_the_interpreter_prints() -> None:
    built = BuiltImage(ImageEntry(3, 7, 8, 900, 10), [1, 2])
    noise = [b"# cleanup[2] removing sys", b"arena map counts", b"[1]"]
    assert decode_report([b"import x", encode_report(built).strip(), *noise]) == built
    # A failure has its reason, and says whether it was damage
    failed = encode_report(CheckpointFailed("no space", damaged=False)).strip()
    with pytest.raises(CheckpointFailed, match="no space"):
        decode_report([failed, *noise])
    # Without a report, the last line is the reason
    with pytest.raises(CheckpointFailed, match="MemoryError"):
        decode_report([b"Traceback", b"MemoryError"])
