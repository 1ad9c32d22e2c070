"""Removes files that are not part of an archive.

Two kinds of file are in an archive's directory without being listed in its manifest:

    unfinished   A step or a merge was killed before the manifest named its files, or a task outlived its driver.
                 The mark ``unfinished`` exists while files are written. A run that finds the mark removes every
                 file that is neither listed nor replaced, and so does each run that merges.
    replaced     The files were merged into others. They remain for `KEEP_MS`, because readers that were planned
                 before the merge still read them. ``replaced.jsonl`` lists the replaced files.

All functions require the archiver's lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from headwater.spark.archive.contents import inside
from headwater.spark.archive.manifest import STATE, Manifest
from headwater.spark.core.durable import append_line, replacing, whole_lines

KEEP_MS: Final = 6 * 3_600_000
"""Time for which a replaced file remains, in ms. Queries and copies of the archive must not take longer."""


@contextmanager
def unfinished(manifest: Manifest) -> Iterator[None]:
    """Mark the archive while the block writes files that are not listed yet. After an error the mark remains."""
    mark = manifest.state / "unfinished"
    mark.touch()
    yield
    mark.unlink()


def was_killed(manifest: Manifest) -> bool:
    """Return whether the last run may have left files. Versions that wrote format 1 did not leave a mark."""
    return (manifest.state / "unfinished").exists() or manifest.format == 1


def remove_unfinished(manifest: Manifest) -> None:
    """Remove the files that are neither listed nor replaced."""
    known = _listed(manifest) | {name for _at, names in _replaced(manifest) for name in names}
    there = [
        *manifest.directory.glob("day=*/*.parquet"),
        *manifest.directory.glob(f"{STATE}/lists/*.json"),
    ]
    names = {str(file.relative_to(manifest.directory)) for file in there}
    _remove(manifest, names - known)


def replaced(manifest: Manifest, names: Iterable[str], now_ms: int) -> None:
    """Record that the manifest no longer lists ``names``. Their files remain for `KEEP_MS`."""
    line = {"at": now_ms, "names": sorted(names)}
    append_line(manifest.state / "replaced.jsonl", json.dumps(line).encode())


def remove_replaced(manifest: Manifest, now_ms: int) -> None:
    """Remove the files that were replaced more than `KEEP_MS` ago."""
    noted = _replaced(manifest)
    # Even if the clock was set back, files are not kept for longer.
    left = [(at, names) for at, names in noted if abs(now_ms - at) < KEEP_MS]
    if len(left) == len(noted):
        return
    # An older manifest that was restored from a copy may list replaced files again.
    gone = {name for one in noted if one not in left for name in one[1]} - _listed(manifest)
    _remove(manifest, gone)
    with replacing(manifest.state / "replaced.jsonl") as file:
        file.write_text("".join(json.dumps({"at": at, "names": of}) + "\n" for at, of in left))


def _listed(manifest: Manifest) -> set[str]:
    """Return the names of all files of the archive, and of the lists that name them."""
    found: set[str] = set()
    for among in manifest.lists():
        found |= {file.name for file in manifest.files(among)}
        if among.name:
            found.add(among.name)
    return found


def _replaced(manifest: Manifest) -> list[tuple[int, list[str]]]:
    found: list[tuple[int, list[str]]] = []
    for line in whole_lines(manifest.state / "replaced.jsonl"):
        try:
            values = json.loads(line)
            found.append((int(values["at"]), [inside(name) for name in values["names"]]))
        except (ValueError, KeyError, TypeError):
            continue  # the files of an invalid line remain, which does no harm
    return found


def _remove(manifest: Manifest, names: set[str]) -> None:
    for name in names:
        (manifest.directory / name).unlink(missing_ok=True)
