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
from headwater.config.config import Config
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.errors import HeadwaterError, JournalDamaged
from headwater.journal.disk.files import DiskFiles
from headwater.persistence import repairing
from headwater.persistence.backup import end_journal
from headwater.persistence.checking import check_store
from headwater.persistence.repairing import RepairPlan, plan_repair
from headwater.server.opening import open_node
from headwater.server.turn.node import Node
from headwater.testing.node import request
from headwater.testing.server import server_process
from tests.samples import sampled

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
@pytest.mark.parametrize("trials", [25, pytest.param(sampled(100), marks=pytest.mark.slice)])
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


# --- a whole record that cannot be applied ------------------------------------------------------------

UNKNOWN = b"\x7f"
"""A kind of fact that no version knows."""

Change = Callable[[Keyspace], object]


def add(node: Node, count: int) -> list[bytes]:
    """Add entries to stream ``s``. Returns their ids."""
    session = node.connect(kind="embedded", address="test")
    return [
        node.exchange(session, request(("XADD", "s", "*", "n", n))).split()[1] for n in range(count)
    ]


def store_with_unknown_fact(directory: Path, change: Change) -> tuple[list[bytes], list[bytes]]:
    """Make a store with a record of a change and an unknown fact, and with others before and after it. Recovery reads
    all of them at once. Returns the ids of the entries before and after it."""
    node = open_node(Config(dir=str(directory), port=0))
    before = add(node, 5)
    with node.lock:
        node.records.turn += 1
        mark = node.records.begin()
        change(node.keyspace)
        node.keyspace.facts.data += UNKNOWN
        node.records.seal(mark, node.times.now())
        node.records.commit()
    after = add(node, 6)
    node.close()
    return before, after


@pytest.mark.parametrize(
    "change",
    [
        lambda _keyspace: None,
        lambda keyspace: keyspace.databases[0].delete(b"s"),
        lambda keyspace: keyspace.databases[0].values[b"s"].trim_through(1 << 62, 0),
        lambda keyspace: keyspace.databases[0].rename(b"s", keyspace.databases[1], b"t"),
    ],
    ids=["nothing", "delete", "trim", "rename"],
)
def test_a_whole_record_that_cannot_be_applied_is_cut_off_with_everything_after_it(
    tmp_path: Path, run_headwater: Run, change: Change
) -> None:
    # Given a store with a whole record of which only a part can be applied, and entries before it and after it
    directory, target = tmp_path / "data", tmp_path / "new"
    before, after = store_with_unknown_fact(directory, change)
    with pytest.raises(JournalDamaged) as refused:
        headwater.connect(f"headwater://{directory}")
    # When it is repaired
    printed = run_headwater("repair", str(directory), "--to", str(target), "--yes")
    # Then the damage, and what is lost after it, was announced
    assert f"damaged: {refused.value}" in printed
    assert "lost: the damaged record and 6 changes after it\n" in printed
    assert f"6 entries from {after[0].decode()} to {after[-1].decode()}" in printed
    # And the result is whole, has what was before the record, and can be written to
    assert check_store(DiskFiles(target)).healthy
    with headwater.connect(f"headwater://{target}") as client:
        assert _ids(client, "s") == before
        client.xadd("s", {"n": 1})
    assert not plan_repair(target).needed


def test_what_a_record_that_cannot_be_applied_had_added_is_announced_as_lost(
    tmp_path: Path,
) -> None:
    # Given a whole record that adds an entry before the fact that cannot be applied
    directory = tmp_path / "data"

    def append(keyspace: Keyspace) -> None:
        stream = keyspace.databases[0].values[b"s"]
        assert isinstance(stream, StoredStream)
        stream.append(1 << 62, 7, b"$1\r\nn\r\n$1\r\n7\r\n", 1, False)

    _before, after = store_with_unknown_fact(directory, append)
    # When its repair is planned, then the entry is among those lost
    (lost,) = plan_repair(directory).lost
    assert (lost.first, lost.last) == (f"{1 << 62}-7", after[-1].decode())
    assert lost.entries == 1 + len(after)


def test_a_repair_whose_result_does_not_open_is_an_error(
    tmp_path: Path, run_headwater: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a repair that cuts off too little
    directory, target = tmp_path / "data", tmp_path / "new"
    store_with_unknown_fact(directory, lambda _keyspace: None)
    plan = plan_repair(directory)
    assert plan.cut is not None
    later = plan.cut._replace(offset=plan.cut.offset + 25)
    monkeypatch.setattr(
        repairing, "end_journal", lambda files, manifest, _cut: end_journal(files, manifest, later)
    )
    # When it is carried out, then it says that the result does not open, and what to do
    said = run_headwater("repair", str(directory), "--to", str(target), "--yes", status=1)
    assert f"{target} cannot be opened" in said
    assert f"{directory} is unchanged" in said
    assert "truncate" not in said


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
