"""Replaces a whole store by a copy of another one, which a replica has received from its primary.

    copy-journal-000007, copy-image-000003, …     written while the store is in use
    ADOPT     the copy is complete: the former files go, or move to the directory that ADOPT names
    ADOPTED   they are gone: the files of the copy get their names

Rule 1. Each step is durable before the next one. After a crash, `finish` continues with the step that is under way, so a
        start finds the former store or the copy, never a mixture. Without ADOPT or ADOPTED, a copy is incomplete and removed.
Rule 2. Names and sizes come from another machine: only names of data files are accepted, and only files that fit on the
        disk are created.
Rule 3. MANIFEST gets its name last. Until then the directory is not a store.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from headwater.errors import StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.failures import MANIFEST_NAME
from headwater.journal.format.manifest import MANIFEST_BYTES
from headwater.journal.format.names import UNNEEDED_NAME
from headwater.journal.format.records import FILE_HEADER_BYTES, read_file_header
from headwater.journal.format.replacing import replace_file

log = logging.getLogger("headwater.journal")

_ADOPT, _ADOPTED = "ADOPT", "ADOPTED"
_PREFIX = "copy-"
_SENT = re.compile(r"(?:journal|image|segment)-\d{6,18}")
_OWN = re.compile(
    rf"(?:(?:journal|image|segment|manifest)-\d{{6,}}|{MANIFEST_NAME}|{UNNEEDED_NAME})(?:\.new)?"
)
_MAX_NAME_BYTES = 255


class CopyRefused(Exception):
    """A copy has a name or a size that no copy of a store has."""


class CopyWriter:
    """Writes a copy into the directory of a store that is in use. ``files`` must be another object than that of the store.

    Errors of the disk are raised as `OSError`. A copy that is not completed is removed by the next one, or at the next
    start.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._name = ""
        self._at = self._size = 0
        remove_incomplete(files)

    def begin(self, name: str, size: int) -> None:
        """Begin a file of ``size`` bytes. Raises `CopyRefused`."""
        self._end()
        if not _SENT.fullmatch(name):
            raise CopyRefused(f"{name[:80]!r} is not the name of a data file")
        if size > self._files.free_bytes():
            raise CopyRefused(
                f"{name} has {size} bytes, and the disk has space for {self._files.free_bytes()}"
            )
        self._name, self._at, self._size = _PREFIX + name, 0, size
        self._files.create(self._name, size)

    def write(self, data: bytes) -> None:
        """Append bytes to the file. Raises `CopyRefused`."""
        if not self._name or self._at + len(data) > self._size:
            raise CopyRefused("more bytes than the file has")
        self._files.write(self._name, self._at, data)
        self._at += len(data)

    def complete(self, manifest: bytes, *, keep: str = "") -> None:
        """End the copy, durably. `finish` then makes it the store, and moves the former files to the directory ``keep``; it
        removes them if that is empty. Raises `CopyRefused`."""
        self._end()
        if len(manifest) > MANIFEST_BYTES:
            raise CopyRefused(f"MANIFEST of {len(manifest)} bytes")
        replace_file(self._files, _PREFIX + MANIFEST_NAME, manifest)
        self._files.sync_directory()
        replace_file(self._files, _ADOPT, f"{keep}\n".encode())
        self._files.sync_directory()

    def _end(self) -> None:
        """Make the current file durable."""
        if not self._name:
            return
        if self._at != self._size:
            raise CopyRefused(f"{self._at} of {self._size} bytes of {self._name}")
        header = read_file_header(self._files.read(self._name, FILE_HEADER_BYTES))
        if header is not None and header.size > self._size:
            # A rotation has cut off the unused space, after which a start would miss it.
            self._files.allocate(self._name, header.size)
        self._files.sync(self._name)
        self._files.close(self._name)
        self._name = ""


def remove_incomplete(files: Files) -> None:
    """Remove the files of a copy that was not completed. Raises `OSError`."""
    names = files.names()
    if _ADOPT not in names and _ADOPTED not in names:
        for name in names:
            if name.startswith((_PREFIX, _ADOPT)):
                files.remove(name)


def finish(files: Files) -> None:
    """Make a complete copy the store (rule 1), or remove an incomplete one. The directory must be locked, and no journal open
    in it. Raises `OSError`."""
    names = files.names()
    if _ADOPT in names:
        _give_up(files, names)
        files.rename(_ADOPT, _ADOPTED)
        files.sync_directory()
        names = files.names()
    if _ADOPTED not in names:
        remove_incomplete(files)
        return
    copied = [name for name in names if name.startswith(_PREFIX)]
    for name in sorted(copied, key=lambda name: (name == _PREFIX + MANIFEST_NAME, name)):
        if name == _PREFIX + MANIFEST_NAME:
            files.sync_directory()
        files.rename(name, name.removeprefix(_PREFIX))
    files.sync_directory()
    files.remove(_ADOPTED)
    files.sync_directory()


def _give_up(files: Files, names: list[str]) -> None:
    """Remove the former store, or move it to the directory that ADOPT names."""
    keep = bytes(files.read(_ADOPT, _MAX_NAME_BYTES)).decode("ascii", "replace").strip()
    files.close(_ADOPT)
    if "/" in keep or keep.startswith("."):
        raise StoreUnusable(
            f"{files.path(_ADOPT)} names {keep!r}; remove it and the files {_PREFIX}*"
        )
    if keep:
        Path(files.path(keep)).mkdir(mode=0o700, exist_ok=True)
    former = [name for name in names if _OWN.fullmatch(name)]
    for name in sorted(former, key=lambda name: name != MANIFEST_NAME):
        if keep:
            files.rename(name, f"{keep}/{name}")
        else:
            files.remove(name)
    files.sync_directory()
