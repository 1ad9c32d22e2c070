"""`headwater repair` says what a damaged store loses, and makes a whole store that lost exactly that."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.errors import HeadwaterError
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.checking import check_store
from headwater.persistence.repairing import RepairPlan, plan_repair
from headwater.testing.server import server_process

pytestmark = pytest.mark.slow

Run = Callable[..., str]

STREAMS = ("orders", "payments")

Contents = dict[str, list[bytes]]
"""The ids of each stream."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    """A store with an image, entries on disk and a journal after the image; and its entries."""
    path = tmp_path_factory.mktemp("whole") / "data"
    with server_process("--stream-hot-bytes", "64kb", "--save", "") as server:
        with redis.Redis.from_url(server.url) as client:
            for n in range(3_000):
                client.xadd(STREAMS[n % 3 == 0], {"n": n, "text": f"{n}" * 40})
            client.xgroup_create("orders", "g", "0")
            client.xreadgroup("g", "ann", {"orders": ">"}, count=100)
            client.save()
            for n in range(1_000):
                added: Any = client.xadd(STREAMS[n % 3 == 0], {"n": n})
                if n % 5 == 0:
                    client.xack("orders", "g", added)
            content = {name: _ids(client, name) for name in STREAMS}
        server.stop()
        shutil.copytree(server.data, path)
    return path, content


def _ids(client: Any, stream: str) -> list[bytes]:
    return [entry_id for entry_id, _fields in client.xrange(stream)]


def damaged(whole: Path, directory: Path, chance: random.Random) -> str:
    """Copy the store and flip a bit of it. Returns the name of the damaged file."""
    shutil.copytree(whole, directory)
    kinds = ("journal", "journal", "segment", "image", "MANIFEST")
    kind = chance.choice(kinds)
    path = chance.choice(sorted(one for one in directory.iterdir() if one.name.startswith(kind)))
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data.rstrip(b"\0")))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return path.name


def announced(plan: RepairPlan, before: Contents) -> dict[str, set[bytes]]:
    """The entries in the ranges that the plan names."""
    found: dict[str, set[bytes]] = {name: set() for name in before}
    for lost in plan.lost:
        ids = before[lost.stream]
        span = ids[ids.index(lost.first.encode()) : ids.index(lost.last.encode()) + 1]
        assert len(span) == lost.entries
        found[lost.stream] |= set(span)
    return found


def _planned(directory: Path, name: str) -> RepairPlan | None:
    """The plan; None if a MANIFEST, an image or a file header is damaged, which is refused by its name."""
    try:
        return plan_repair(directory)
    except HeadwaterError as error:
        if name not in str(error):
            raise
        return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("trials", [25, pytest.param(300, marks=pytest.mark.slice)])
def test_what_is_announced_is_what_is_lost(
    tmp_path: Path, whole: tuple[Path, Contents], run_headwater: Run, trials: int
) -> None:
    source, before = whole
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # shown if the test fails
    chance = random.Random(seed)
    repaired = 0
    for number in range(trials):
        # Given a flipped bit anywhere in the used parts of any file
        directory, target = tmp_path / "data", tmp_path / "new"
        for one in (directory, target):
            shutil.rmtree(one, ignore_errors=True)
        name = damaged(source, directory, chance)
        plan = _planned(directory, name)
        if plan is None:
            continue
        # When it is repaired
        run_headwater("repair", str(directory), "--to", str(target), "--yes")
        if not plan.needed:  # a copy of ids, or bytes that nothing refers to
            assert not target.exists()
            continue
        # Then the result is whole, and has lost what was announced, and the damaged record at most
        repaired += 1
        assert check_store(DiskFiles(target)).healthy, (number, name)
        expected = announced(plan, before)
        with headwater.connect(f"headwater://{target}") as client:
            lost = {one: set(before[one]) - set(_ids(client, one)) for one in before}
        assert all(expected[one] <= lost[one] for one in before), (number, name)
        rest = sum(len(lost[one] - expected[one]) for one in before)
        assert rest <= int(plan.cut is not None), (number, name)
    assert repaired > trials / 10


def test_a_whole_store_needs_no_repair(
    tmp_path: Path, whole: tuple[Path, Contents], run_headwater: Run
) -> None:
    printed = run_headwater("repair", str(whole[0]), "--to", str(tmp_path / "new"), "--yes")
    assert printed.endswith(": nothing to repair\n")
    assert not (tmp_path / "new").exists()


def test_a_dry_run_and_a_no_make_nothing_and_a_yes_says_what_it_made(
    tmp_path: Path, whole: tuple[Path, Contents], run_headwater: Run
) -> None:
    # Given a damaged journal
    directory, target = tmp_path / "data", tmp_path / "new"
    shutil.copytree(whole[0], directory)
    path = next(
        one for one in sorted(directory.glob("journal-*")) if one.read_bytes()[200:].strip(b"\0")
    )
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) // 2] ^= 1
    path.write_bytes(data)
    # When it is looked at, or not confirmed, then nothing is made
    (found,) = json.loads(
        run_headwater("repair", str(directory), "--to", str(target), "--dry-run", "-o", "json")
    )
    assert path.name in found["damage"]
    assert sum(one["entries"] for one in found["lost"]) > 0
    assert "Recover the rest of the store" in run_headwater(
        "repair", str(directory), "--to", str(target), status=1
    )
    assert not target.exists()
    # And when it is repaired, then that is said
    printed = run_headwater("repair", str(directory), "--to", str(target), "--yes")
    assert printed.splitlines()[-1].startswith(f"repaired: {target} has the rest of the store")
    assert target.exists()
