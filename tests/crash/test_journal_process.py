"""The journal in real processes on a real file system: killed at any moment, and on a full disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from headwater.engine.keyspace.keyspace import Keyspace
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.replaying import log_recovery
from tests.alarms import listening
from tests.crash.journal_tools import fact, open_journal

pytestmark = pytest.mark.slow

WRITER = """
import sys
from headwater.journal.disk.files import DiskFiles
from tests.crash.journal_tools import open_journal, write_turn
journal, facts = open_journal(DiskFiles(sys.argv[1]), policy="always", file_bytes=16384)
turn, number = journal.recovery.last_turn, len(facts)
while True:
    turn, number = turn + 1, number + 1
    write_turn(journal, f"fact {number} " + "x" * (number * 37 % 900), turn=turn)
    print(number, flush=True)
"""

FILLER = """
import os, sys
from headwater.journal.disk.files import DiskFiles
from tests.crash.journal_tools import facts_in, open_journal, turn_of, fact
directory = sys.argv[1]
journal, _ = open_journal(DiskFiles(directory), policy="always", file_bytes=262144)
os.mkdir(directory + "/other")
with open(directory + "/other/file", "wb") as other:
    other.write(bytes(700_000))
turn = 0
def write():
    global turn
    buffer = turn_of(journal, [fact("x" * 1000)], turn=turn + 1)
    reason = journal.admits(len(buffer))
    if reason is None:
        turn += 1
        journal.commit(buffer)
    return reason
while (reason := write()) is None:
    pass
print("refused:", reason)
assert write() == reason
os.unlink(directory + "/other/file")
assert write() is None
journal.close()
files = DiskFiles(directory)
assert facts_in(files)[0] == [fact("x" * 1000)] * turn
print("turns:", turn)
"""


ROOT = Path(__file__).parents[2]


def text(number: int) -> str:
    return f"fact {number} " + "x" * (number * 37 % 900)


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    random = Random(1)
    acknowledged = 0
    for _ in range(10):
        # Given a process that writes a fact in each turn, and reports it. A turn that is killed after its fsync
        # record, before its fact, leaves a number of a turn without a fact.
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as writer:
            assert writer.stdout is not None
            # When it is killed after some facts
            for _ in range(random.randint(1, 60)):
                acknowledged = int(writer.stdout.readline())
            writer.kill()
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        # Then all of these facts are there, in order, without a gap
        journal, facts = open_journal(DiskFiles(tmp_path), file_bytes=16384)
        with listening() as heard:
            log_recovery(journal.recovery, Keyspace())
        assert heard == []
        assert len(facts) >= acknowledged
        assert facts == [fact(text(number)) for number in range(1, len(facts) + 1)]
        journal.close()
    assert acknowledged > 100


def test_a_full_file_system_refuses_and_recovers(tmp_path: Path) -> None:
    # Given a file system of 2 MiB
    mounted = f"mount -t tmpfs -o size=2m,mode=700 none {tmp_path} && exec "
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*inside, mounted + "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")
    # When a journal fills it, and then another file is deleted
    done = subprocess.run(
        [*inside, mounted + '"$0" "$@"', sys.executable, "-c", FILLER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    # Then what did not fit was refused with the reason, and accepted afterwards
    assert done.returncode == 0, done.stderr
    assert "refused: 262144 bytes are needed for the next file" in done.stdout
    assert "turns: " in done.stdout
