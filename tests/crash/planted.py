"""Plants faults in a copy of the sources and checks that the intended test finds each: a test of the tests.

    python -m tests.crash.planted NAME

runs the check NAME with the `headwater` that is imported, and prints what it found; no output means nothing.
`plant` creates the copy. It runs as plain Python: the same sources, without minutes of compilation for each
fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.flip_campaign import FlipCampaign
from tests.crash.node_campaign import NodeCampaign
from tests.crash.node_store import tiny_segments
from tests.property.model_campaign import Run, history

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = 5
"""Maximum number of histories that a check may need. A fault that is found later counts as missed."""
FLIPS = 100
"""Number of flipped bits in each of them."""


class Fault(NamedTuple):
    """``text``, which occurs once in the file, is replaced by ``planted``. ``check`` must find the fault and
    print ``seen``."""

    file: str
    text: str
    planted: str
    check: str
    seen: str


FAULTS: dict[str, Fault] = {
    "reply before commit": Fault(
        "server/turn/node.py",
        "        changed, self.clients.changed = self.clients.changed, []\n        try:\n",
        "        changed, self.clients.changed = self.clients.changed, []\n"
        "        for session in changed:\n"
        "            if session.output.release():\n"
        "                session.tell()\n"
        "        try:\n",
        "crashes",
        "a state from before it",
    ),
    "min-idle comparison inverted": Fault(
        "commands/xclaim.py",
        "self.now_ms - time >= self.min_idle",
        "self.now_ms - time < self.min_idle",
        "model",
        "CLAIM",
    ),
    "owner ignored": Fault(
        "engine/groups/group.py",
        "at >= 0 and self.pel.owner(at) == consumer.cid",
        "at >= 0",
        "model",
        "the model",
    ),
    "manifest renamed before the image is synced": Fault(
        "journal/images/images.py",
        "        files.sync(self._name)\n",
        "",
        "crashes",
        "is damaged",
    ),
    "journal dropped before the manifest is durable": Fault(
        "journal/images/catalog.py",
        "        self.replace(self.manifest._replace(image=entry, first=first, next_image=entry.number + 1))\n",
        "        for number in journal_numbers(self._files):\n"
        "            if number < first:\n"
        "                self._files.remove(file_name(number))\n"
        "        self.replace(self.manifest._replace(image=entry, first=first, next_image=entry.number + 1))\n",
        "crashes",
        "is missing",
    ),
    "fsync omitted": Fault(
        "journal/log/writing.py",
        "        self._files.sync(self.name)\n",
        "",
        "crashes",
        "a state from before it",
    ),
    "fsync of a segment omitted": Fault(
        "journal/segments/segments.py",
        "                self._files.sync(name)\n",
        "                pass\n",
        "cold",
        "segment-",
    ),
    "CRC of records off": Fault(
        "journal/format/records.py",
        "    if extend_view(seed ^ length, data, offset + 8, end) != checksum:\n        return 0\n",
        "",
        "flips",
        "silent: a state that never existed",
    ),
    "CRC of bodies off": Fault(
        "journal/segments/blobs.py",
        "    if found != checksum:\n",
        "    if False:\n",
        "flips",
        "silent",
    ),
    "a segment deleted while referenced": Fault(
        "server/services/storage/segments.py",
        "        return [one for one in there if not any(one in numbers for numbers in referenced)]\n",
        "        return list(there)\n",
        "cold",
        "the journal names segments that were removed",
    ),
    "helper allowed to replace the manifest": Fault(
        "persistence/building.py",
        "        entry = write_image(files, applying.keyspace, rotation, order.seed)\n",
        "        entry = write_image(files, applying.keyspace, rotation, order.seed)\n"
        "        from headwater.journal.images.catalog import Catalog\n"
        "        own = Catalog(files)\n"
        "        own.use_image(entry, rotation.first)\n"
        "        own.remove_old()\n",
        "crashes",
        "is missing",
    ),
    "a segment removed at a start while the journal names it": Fault(
        "server/services/services.py",
        "named = source.image_segments | keyspace.named_segments",
        "named = source.image_segments",
        "cold",
        "the journal names segments that were removed",
    ),
    "a file that a rotation cut called unknown": Fault(
        "journal/log/recovery.py",
        "            if not continued:\n                self._note_short(file, content)\n",
        "            if self.clean:\n                self._note_short(file, content)\n            if not continued:\n",
        "crashes",
        "a false alarm",
    ),
    "delivery count not persisted": Fault(
        "engine/groups/group.py",
        "        self.facts.owned(self.gid, cid, seen_time, active_time, records)\n",
        "        for base in range(3, len(records), 4):\n"
        "            records[base] = 1\n"
        "        self.facts.owned(self.gid, cid, seen_time, active_time, records)\n",
        "crashes",
        "a state that never existed",
    ),
}


def model() -> str:
    """Return what the property machine finds, compared with the naive model."""
    found = (Run(history(seed)).what for seed in range(HISTORIES))
    return next((what for what in found if what), "")


def crashes() -> str:
    """Return what the crash campaign of a node finds."""
    found = (NodeCampaign(seed).run().failures for seed in range(HISTORIES))
    return next((failures[0] for failures in found if failures), "")


def cold() -> str:
    """Return what the crash campaign of a node finds whose entries go to disk."""
    with pytest.MonkeyPatch.context() as patches:
        tiny_segments(patches)
        found = (NodeCampaign(seed, cold=True).run().failures for seed in range(HISTORIES // 2))
        return next((failures[0] for failures in found if failures), "")


def flips() -> str:
    """Return what flipped bits find, first of all what was silent."""
    found = (FlipCampaign(seed, trials=FLIPS).run().failures for seed in range(HISTORIES))
    failures = next((failures for failures in found if failures), [])
    return next((text for text in failures if "silent" in text), "".join(failures[:1]))


CHECKS: dict[str, Callable[[], str]] = {
    "model": model,
    "crashes": crashes,
    "cold": cold,
    "flips": flips,
}


def plant(fault: Fault | None, directory: Path) -> Path:
    """Copy the sources, with the fault if there is one. Return the directory for PYTHONPATH."""
    copy = directory / "src"
    # With the bytecode, which stays valid: a copied file keeps its time.
    kept = shutil.ignore_patterns("*.so", "*.c", "*.html")
    shutil.copytree(ROOT / "src", copy, ignore=kept)
    if fault is not None:
        file = copy / "headwater" / fault.file
        text = file.read_text(encoding="utf-8")
        assert text.count(fault.text) == 1, f"{fault.file} has changed; update the fault"
        file.write_text(text.replace(fault.text, fault.planted), encoding="utf-8")
    return copy


def checked(check: str, sources: Path) -> str:
    """Return what the check finds with these sources. A check that crashes is an error."""
    environment = {
        **os.environ,
        "HEADWATER_PURE": "1",
        "PYTHONPATH": f"{sources}{os.pathsep}{ROOT}",
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.planted", check],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    imported, _, found = done.stdout.partition("\n")
    assert imported == str(sources / "headwater"), f"checked {imported} instead of the copy"
    return found


def main() -> int:
    """Print which sources are checked, and what was found."""
    found = CHECKS[sys.argv[1]]()
    print(Path(sys.modules["headwater"].__file__ or "").parent)
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
