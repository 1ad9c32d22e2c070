"""`make bench-storage`: sizes, files, verdicts, what is said about rows that cannot be measured, and tiny real
measurements."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import results
from benchmarks.load import Sample
from benchmarks.rows import OURS, REDIS, Row, Target
from benchmarks.storage import (
    __main__ as program,
)
from benchmarks.storage import (
    cold,
    disk,
    files,
    huge,
    page,
    replays,
    rewriting,
    servers,
    sizes,
    starts,
    writers,
)
from benchmarks.storage.__main__ import PARTS, Part
from benchmarks.storage.servers import Unmeasured, running_stored, stored
from benchmarks.storage.sizes import MIB, Sizes
from benchmarks.stores import HEADWATER, Store, cores, durability, running
from tests.peers import Peer

# --- sizes and files --------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [sizes, servers], ids=lambda module: module.__name__)
def test_the_examples_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_a_cold_stream_is_twenty_times_as_large_as_the_hot_bytes() -> None:
    for entries in (20_000, 1_000_000):
        size = Sizes(entries=entries)
        assert size.cold_entries * 150 == pytest.approx(20 * size.hot_bytes, rel=0.001)
        assert cold.cache_bytes(size) < size.hot_bytes


def test_a_walk_over_cold_data_ends_before_the_hot_entries() -> None:
    # Given a stream of which a twentieth is hot
    size = Sizes()
    # When its cold entries are walked
    requests = cold.walk(size)
    # Then the reads follow one another, and leave out twice as many entries as are hot
    firsts = [int(one.split(b"\r\n")[6].removesuffix(b"-1")) for one in requests]
    assert firsts == list(range(1, firsts[-1] + 1, cold.COUNT))
    assert 0.88 < (firsts[-1] + cold.COUNT) / size.cold_entries <= 0.901


@pytest.mark.parametrize("end", [0, 1, 1000, MIB, 3 * MIB - 7, 3 * MIB])
def test_preallocated_zeros_are_not_counted_as_written(end: int, tmp_path: Path) -> None:
    # Given a journal of which ``end`` bytes were written, with zeros among them, and an image
    (tmp_path / "journal-000001").write_bytes((bytes(end - 1) + b"x" if end else b"") + bytes(MIB))
    (tmp_path / "image-000001").write_bytes(b"x" + bytes(9))
    # Then the image counts whole, and the journal without its end
    assert files.used_bytes(tmp_path) == end + 10
    assert files.allocated_bytes(tmp_path) >= end + MIB


def test_a_directory_without_a_segment_cannot_measure_cold_data(tmp_path: Path) -> None:
    (tmp_path / "journal-000001").write_bytes(b"x")
    with pytest.raises(Unmeasured, match="no segment file"):
        files.check_segments(tmp_path)
    (tmp_path / "segment-000001").write_bytes(b"x")
    files.check_segments(tmp_path)


def test_segments_can_be_read_after_their_pages_are_dropped(tmp_path: Path) -> None:
    segment = tmp_path / "segment-000001"
    segment.write_bytes(b"blob" * 10_000)
    with cold.dropping(tmp_path):
        files.read_pages(tmp_path)
    assert segment.read_bytes() == b"blob" * 10_000


# --- arithmetic and verdicts ------------------------------------------------------------------------


@pytest.mark.parametrize(("found", "verdict"), [(276.0, "goal"), (277.0, "missed")])
def test_files_may_have_twice_the_live_data_and_a_quarter_of_a_gibibyte(
    found: float, verdict: str
) -> None:
    row = disk.files_row(10.0)
    row.of(OURS).add(found)
    assert row.verdict() == verdict


def a_sample(rate: float, p99_us: float) -> Sample:
    """Return a load of one second."""
    return Sample(int(rate), 1.0, p99_us / 2, p99_us, 2 * p99_us, 0.5, 0.1)


@pytest.mark.parametrize(
    ("during", "p99_us", "verdicts"),
    [(97_000, 500.0, ("goal", "goal")), (90_000, 1000.0, ("required", "required")),
     (89_000, 1001.0, ("missed", "missed"))],
)  # fmt: skip
def test_writers_are_compared_with_themselves_and_their_p99_with_redis(
    during: float, p99_us: float, verdicts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the rows of a run
    monkeypatch.setattr(writers, "available", list)
    rate, p99 = writers.writers(Sizes(rounds=0), Path())
    # When a store writes 100,000 entries a second without a checkpoint, and Redis has a p99 of 1 ms
    writers.add_samples(rate, p99, OURS, a_sample(100_000, 100.0), a_sample(during, p99_us))
    writers.add_samples(rate, p99, REDIS, a_sample(200_000, 100.0), a_sample(50_000, 1000.0))
    # Then its own rate is what counts, and Redis's p99
    assert (rate.verdict(), p99.verdict()) == verdicts


def test_a_checkpoint_that_hardly_runs_is_no_measurement() -> None:
    writers.check_covered(OURS, 0.5)
    writers.check_covered(REDIS, 0.1)
    with pytest.raises(Unmeasured, match="in only 49% of the time"):
        writers.check_covered(OURS, 0.49)


def test_a_replay_below_the_clocks_resolution_is_no_measurement() -> None:
    assert replays.ratio(0.3, 0.6) == 0.5
    for replaying, executing in ((0.0, 1.0), (-0.1, 1.0), (1.0, 0.0)):
        with pytest.raises(Unmeasured, match="too few entries"):
            replays.ratio(replaying, executing)


# --- rows that cannot be measured -------------------------------------------------------------------


def a_row(name: str, value: float) -> Row:
    """Return a row that requires at most 1."""
    row = Row("start", name, "s", better="less", target=Target(1.0, 0.5, by="figure"))
    row.of(OURS).add(value)
    return row


def test_every_row_that_a_failure_leaves_out_fails_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a part of three rows, which cannot measure the second one
    def measure(sizes: Sizes, scratch: Path) -> Iterator[Row]:
        assert scratch.is_dir()
        yield a_row("first", 0.7)
        raise Unmeasured("the server refuses it")

    monkeypatch.setitem(PARTS, "clean", Part(measure, ("first", "second", "third")))
    # When it is run
    rows = list(program.measured("clean", Sizes()))
    # Then the first row has passed, and the others fail
    assert [row.name for row in rows] == ["first", "second", "third"]
    assert [row.name for row in program.failed(rows)] == ["second", "third"]
    assert program.sentence(rows[2]) == "FAIL third: the server refuses it"


def test_a_missed_row_is_named_with_its_figures() -> None:
    assert program.sentence(a_row("slow", 1.5)) == "FAIL slow: 1.5, required at most 1"
    row = Row("disk", "bytes", "B", better="less", target=Target(0.5, 0.25))
    row.of(OURS).add(100.0)
    assert program.sentence(row) == "FAIL bytes: there is no measurement of redis-8.2"
    assert program.failed([a_row("fast", 0.4), row]) == [row]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (1.1, 1)])
def test_the_status_says_whether_a_required_value_was_missed(
    value: float,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Given a part of one row
    monkeypatch.setitem(PARTS, "clean", Part(lambda *_: iter([a_row("row", value)]), ("row",)))
    monkeypatch.setattr(program, "STORES", [HEADWATER])
    monkeypatch.setattr("tests.peers.DIRECTORY", Path("nowhere"))
    mine = os.sched_getaffinity(0)
    # When the program runs it
    try:
        found = program.main(["--only", "clean", "--output", str(tmp_path / "a.json")])
    finally:
        os.sched_setaffinity(0, mine)
    # Then the status is 1 only if the value was missed, and the file has the row
    assert found == status
    assert ("FAIL row: 1.1, required at most 1" in capsys.readouterr().out) == bool(status)
    assert [row["name"] for row in results.read(tmp_path / "a.json")["rows"]] == ["row"]


def test_without_a_peer_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.peers.DIRECTORY", Path("nowhere"))
    assert program.main([]) == 2
    assert "missing: redis-8.2, valkey-9.1" in capsys.readouterr().err


def test_only_a_complete_run_is_kept_in_the_repository() -> None:
    report = {"date": "2026-11-21T10:00:00+00:00", "commit": "0123456789"}
    for words, kept in (
        ([], True),
        (["--rounds", "3", "--minutes", "60"], True),
        (["--only", "disk"], False),
        (["--entries", "5"], False),
        (["--seconds", "1"], False),
    ):
        path = program.path_of(program.parser().parse_args(words), report)
        assert path == (page.DIRECTORY / "2026-11-21-0123456.json" if kept else program.PART)


def test_the_scaled_start_has_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Given measurements that would miss what is required
    def measure(*_: object) -> Iterator[Row]:
        yield a_row("start", 100.0)

    monkeypatch.setattr(huge, "_rows", measure)
    # Then only the row with the table's size is judged
    assert [row.verdict() for row in huge.scaled(Sizes(), tmp_path)] == ["reported"]
    assert [row.verdict() for row in huge.huge(Sizes(), tmp_path)] == ["missed"]


# --- the page ---------------------------------------------------------------------------------------


def test_the_page_shows_values_targets_and_reasons(tmp_path: Path) -> None:
    # Given results of a measured row and of one that could not be measured
    row = Row("disk", "bytes", "B", better="less", target=Target(0.5, 0.25))
    row.of(OURS).add(30.0)
    row.of(REDIS).add(100.0)
    report: results.Report = {
        "format": results.FORMAT,
        "date": "2026-11-23T00:00:00+00:00",
        "commit": "0123456789abcdef",
        "rounds": 1,
        "rows": [],
    }
    results.add(report, [row, Row("cold", "reads", "", missing="no segment file")])
    results.write(report, tmp_path / "a.json")
    # Then the section has a line for each, and the reason
    text = page.section(tmp_path)
    assert "| bytes (B) | 100 |  | 30 | 0% | 0.3 | 0.5 | 0.25 | required |" in text
    assert "reads: no segment file." in text


def test_without_results_there_is_no_section(tmp_path: Path) -> None:
    assert page.section(tmp_path / "none") == ""
    assert page.section(tmp_path) == ""


# --- tiny real measurements -------------------------------------------------------------------------


def test_the_processes_of_a_server_are_moved_to_another_core() -> None:
    # Given a process that was started by another one, which was started by this one
    script = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as child:
        try:
            while len(found := rewriting.children(child.pid)) < 1:
                assert child.poll() is None
            # When it is moved
            for pid in found:
                rewriting.move(pid, cores()[1])
            # Then it is on that core, and a process that has ended is ignored
            assert {frozenset(os.sched_getaffinity(pid)) for pid in found} == {
                frozenset({cores()[1]})
            }
            rewriting.move(2**22 + 1, cores()[1])
        finally:
            os.killpg(child.pid, 9)


def test_a_refused_checkpoint_is_the_reason_of_a_row() -> None:
    with running(HEADWATER, "--appendonly", "no", "--save", "") as store:
        with pytest.raises(Unmeasured, match="headwater: BGREWRITEAOF: "):
            rewriting.rewrite(store)


@pytest.mark.peer
@pytest.mark.usefixtures("program")
def test_a_rewrite_runs_until_the_block_ends(shared_peer: Callable[[str], Peer]) -> None:
    # Given a Redis with an append-only file and some entries
    peer = shared_peer(REDIS)
    store = Store(REDIS, peer.host, peer.port, peer.pid, cores()[1])
    with store.client() as client:
        client.config_set("appendonly", "yes")
        try:
            store.fill("s", 1000, ("a", "##"))
            rewriting.await_end(store)
            # When rewrites run inside a block
            with rewriting.Rewriter(store, cores()[1]) as rewriter:
                store.fill("s", 1000, ("a", "##"), first=1001)
            # Then at least one was begun, and none runs afterwards
            assert rewriter.rewrites >= 1
            assert 0.0 <= rewriter.covered <= 1.0
            assert not rewriting.in_progress(client)
        finally:
            client.config_set("appendonly", "no")


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_a_killed_server_is_started_with_its_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Given Headwater alone, and a journal of a hundredth of the usual size
    monkeypatch.setattr(starts, "available", lambda: [HEADWATER])
    tiny = Sizes(rounds=1, entries=10_000)
    # When the starts after a SIGKILL are measured
    rows = list(starts.killed(tiny, tmp_path))
    # Then both rows have a measurement, of a journal that is large enough
    assert [row.name for row in rows] == list(PARTS["killed"].names)
    for row in rows:
        assert 0 < row.of(OURS).median < servers.START_SECONDS
        assert int(row.note.split()[0].replace(",", "")) * 400 > tiny.tail_bytes


def test_a_server_that_does_not_start_is_a_reason_with_its_log(tmp_path: Path) -> None:
    words = durability("everysec", peer=False)
    with stored(HEADWATER, tmp_path / "data", *words, "--no-such-flag") as server:
        with pytest.raises(Unmeasured, match=r"headwater ended with status .*no-such-flag"):
            server.start()


def test_a_setting_that_the_server_does_not_have_is_a_reason(tmp_path: Path) -> None:
    settings = [("no-such-setting", "1")]
    with pytest.raises(Unmeasured, match="CONFIG SET no-such-setting 1: "):
        with running_stored(HEADWATER, tmp_path / "data", settings=settings):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(replays.NAMES))
def test_a_replay_restores_what_was_executed(kind: str, tmp_path: Path) -> None:
    # Given commands that were executed in process
    done = replays.in_own_process("execute", kind, "1000", str(tmp_path))
    # When their journal is replayed
    full, base = (
        replays.in_own_process("replay", str(tmp_path / name)) for name in ("full", "base")
    )
    # Then the same is left, and the prepared commands alone leave something else
    assert full["left"] == done["left"]
    assert base["left"] != done["left"]
    assert done["operations"] == (500 if kind == "xdel" else 1000)
