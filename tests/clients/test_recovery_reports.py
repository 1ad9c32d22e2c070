"""Whichever way a store is opened, what recovery cut off or found suspicious is logged and reported."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater import RecoveryReport
from headwater.client.embedded_opening import node_of
from headwater.config.config import Config
from headwater.errors import JournalDamaged, NodePoisoned
from headwater.journal.format.names import file_name
from headwater.journal.format.records import FILE_HEADER_BYTES
from headwater.testing.node import LocalStore
from headwater.testing.server import server_process

TORN = b"torn by a crash"
FIRST, SECOND = file_name(1), file_name(2)


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A data directory with three commands, a torn tail, and a next file with an overwritten header."""
    directory = tmp_path / "data"
    with headwater.connect(f"headwater://{directory}") as client:
        for number in range(3):
            client.xadd("orders", {"n": number})
        journal = node_of(client).journal
        assert journal is not None
    with (directory / FIRST).open("r+b") as file:
        file.seek(journal._writer.end)
        file.write(TORN)
    with (directory / SECOND).open("r+b") as file:
        file.write(bytes(FILE_HEADER_BYTES))
    return directory


def check(report: RecoveryReport | None, directory: Path) -> None:
    """Check the report for `torn`."""
    assert report is not None
    assert report.groups == 3
    (cut,) = report.cuts
    assert (cut.file, cut.length) == (FIRST, len(TORN))
    assert report.cut_bytes == len(TORN)
    (note,) = report.notes
    assert note.startswith(f"{directory}/{SECOND}: its header cannot be read.")


def check_text(text: str, directory: Path) -> None:
    """Check the log for `torn`."""
    assert text.count("the journal's tail was torn by a crash") == 1
    assert f"{directory}/{FIRST}: cut {len(TORN)} bytes at offset " in text
    assert text.count(f"{directory}/{SECOND}: its header cannot be read.") == 1


def check_info(info: Mapping[str, Any], *, groups: int = 3) -> None:
    assert info["journal_recovered_groups"] == groups
    assert info["journal_recovery_cuts"] == 1
    assert info["journal_recovery_cut_bytes"] == len(TORN)
    assert info["journal_recovery_notes"] == 1


def test_an_embedded_client_reports(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    with headwater.connect(f"headwater://{torn}") as client:
        check(client.recovery, torn)
        check_info(client.info("persistence"))
        # A second client of the same store gets the same report, and nothing is logged twice
        with headwater.connect(f"headwater://{torn}") as other:
            check(other.recovery, torn)
    check_text(caplog.text, torn)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert all(record.name.startswith("headwater.") for record in caplog.records)


def test_a_reported_problem_is_repaired(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    headwater.connect(f"headwater://{torn}").close()
    caplog.clear()
    with headwater.connect(f"headwater://{torn}") as client:
        assert client.recovery == RecoveryReport(groups=3)
        info = client.info("persistence")
        assert [info[f"journal_recovery_{name}"] for name in ("cuts", "cut_bytes", "notes")] == [
            0
        ] * 3
    assert caplog.text == ""


async def test_an_asyncio_client_reports(torn: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with headwater.aio.connect(f"headwater://{torn}") as client:
        check(client.recovery, torn)
        check_info(await client.info("persistence"))
    check_text(caplog.text, torn)


def test_a_store_without_a_journal_recovered_nothing() -> None:
    with headwater.connect("headwater://memory") as client:
        assert client.recovery == RecoveryReport()
        assert "journal_recovery_cuts" not in client.info("persistence")


@pytest.mark.slow
def test_a_server_reports(torn: Path) -> None:
    log = torn / "log"
    with (
        server_process("--dir", str(torn), "--logfile", str(log)) as server,
        headwater.connect(server.url) as client,
    ):
        assert client.recovery is None
        check_info(client.info("persistence"))
    check_text(log.read_text(), torn)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        ["-c", "import headwater, sys; headwater.connect(sys.argv[1])"],
        ["-m", "headwater", "dead", "list", "orders", "--url"],
    ],
)
def test_a_program_without_logging_configuration_shows_it(torn: Path, program: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *program, f"headwater://{torn}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    check_text(done.stderr, torn)


def test_a_store_that_is_served_to_spark_reports(
    torn: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from headwater.spark.embedded import serving

    with serving(f"headwater://{torn}") as url, redis.Redis.from_url(url) as client:
        check_info(client.info("persistence"))
    check_text(caplog.text, torn)


# --- DEBUG RELOAD -----------------------------------------------------------------------------------


@pytest.fixture
def store() -> LocalStore:
    store = LocalStore(config=Config(port=0, enable_debug_command="yes"))
    client = store.client()
    for number in range(1, 4):
        client("XADD", "orders", f"{number}-1", "n", number)
    return store


def test_a_reload_reports(store: LocalStore, caplog: pytest.LogCaptureFixture) -> None:
    # Given a spare file that was damaged while the store runs
    assert store.files is not None
    store.files.corrupt(SECOND, 0, bytes(FILE_HEADER_BYTES))
    client = store.client()
    # When the journal is read again
    assert client("DEBUG", "RELOAD") is not None
    # Then the finding is logged and reported
    assert f"{SECOND}: its header cannot be read" in caplog.text
    info = client("INFO", "persistence")
    assert isinstance(info, bytes)
    assert b"journal_recovery_notes:1\r\n" in info
    assert b"journal_recovered_groups:3\r\n" in info


@pytest.mark.parametrize("lost", [b"\xff", bytes(200)])
def test_a_reload_that_would_lose_acknowledged_writes_is_refused(
    store: LocalStore, caplog: pytest.LogCaptureFixture, lost: bytes
) -> None:
    # Given a newest record that the disk has damaged or lost, without a later record that proves it
    assert store.files is not None
    assert store.node.journal is not None
    end = store.node.journal._writer.end
    store.files.corrupt(FIRST, end - 20, lost)
    # When the journal is read again, then it is damaged, not torn: the write was acknowledged
    client = store.client()
    with pytest.raises((JournalDamaged, NodePoisoned), match=f"{FIRST} is damaged at offset"):
        client("DEBUG", "RELOAD")
    assert f"{FIRST} is damaged at offset" in caplog.text
