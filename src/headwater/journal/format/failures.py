"""The texts of errors: what was found, in which file and at which offset, and what to do about it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from headwater.errors import ForkedStore, JournalDamaged, StoreUnusable
from headwater.journal.disk import regular
from headwater.journal.disk.files import Files
from headwater.journal.format.records import FILE_HEADER_BYTES, read_file_header

MANIFEST_NAME = regular.MANIFEST_NAME
EDITED = "crc32c edited"
"""The last line of a MANIFEST that was corrected by hand."""
_PAST = "Only the history is affected: `headwater check` says how to go on without this part of it."


def damaged_file(
    files: Files, name: str, offset: int, found: str, *, size: int, manifest: bool
) -> JournalDamaged:
    """Return the error for damage in a journal file of ``size`` allocated bytes. ``manifest`` is True if the
    directory has a MANIFEST."""
    where = (
        f"{files.path(name)} is damaged at offset {offset}: found {found}. Nothing was changed. "
    )
    if _is_past(files, name):
        return JournalDamaged(where + _PAST)
    return JournalDamaged(
        f"{where}Restore the data directory from a backup; or see with `headwater repair {files.path('').rstrip('/')} "
        "--to NEWDIR --dry-run` what a store without it would lose; or, to discard everything from there on by hand, "
        f"make a copy, {_remedy(offset, size)} and remove the journal files after it"
        f"{_correct_manifest(name, offset) if manifest else ''}."
    )


def damaged_at(files: Files, name: str, offset: int, found: str) -> JournalDamaged:
    """Return the error for damage in the journal file or image with this name."""
    if not name.startswith("journal-"):
        return damaged_image(files, name, offset, found)
    header = read_file_header(files.read(name, FILE_HEADER_BYTES))
    size = 0 if header is None else header.size
    manifest = MANIFEST_NAME in files.names()
    return damaged_file(files, name, offset, found, size=size, manifest=manifest)


def _is_past(files: Files, name: str) -> bool:
    """Return whether ``name`` names a journal file or an image that is kept although MANIFEST does not name it
    any more (`headwater.journal.images.retention`)."""
    kind, _, number = name.partition("-")
    if MANIFEST_NAME not in files.names():
        return False
    field = {"journal": b"first", "image": b"image"}[kind]
    named = re.search(rb"^%s (\d+)$" % field, bytes(files.read(MANIFEST_NAME, 4096)), re.MULTILINE)
    return named is not None and int(number) < int(named[1])


def _remedy(offset: int, size: int) -> str:
    if offset < FILE_HEADER_BYTES or not size:
        return "remove this file"
    return (
        f"fill this file with zeros from there on (truncate -s {offset}, then truncate -s {size})"
    )


def _correct_manifest(name: str, offset: int) -> str:
    number = int(name.removeprefix("journal-"))
    removed = offset < FILE_HEADER_BYTES
    last = number - 1 if removed else number
    return (
        f"; then change the lines last and floor of {MANIFEST_NAME} to 'last {last}' and 'floor 0 0', and its "
        f"last line to '{EDITED}'"
    )


def missing_file(files: Files, name: str, reason: str) -> JournalDamaged:
    """Return the error for a missing file. ``reason`` says why the file must exist."""
    return JournalDamaged(
        f"{files.path(name)} is missing, although {reason}. Nothing was changed. Restore the missing file, "
        "or restore the data directory from a backup."
    )


def damaged_manifest(files: Files, name: str, line: int, found: str) -> JournalDamaged:
    """Return the error for a flaw in MANIFEST, or in a former one with this name. Lines are counted from 1."""
    where = f"{files.path(name)} is damaged at line {line}: found {found}. Nothing was changed. "
    if name != MANIFEST_NAME:
        return JournalDamaged(where + _PAST)
    return JournalDamaged(
        f"{where}Restore the data directory from a backup; or make a copy, correct the line, and replace the last line "
        f"with '{EDITED}'."
    )


def damaged_image(files: Files, name: str, offset: int, found: str) -> JournalDamaged:
    """Return the error for damage in an image, which no other file can replace."""
    where = (
        f"{files.path(name)} is damaged at offset {offset}: found {found}. Nothing was changed. "
    )
    return JournalDamaged(
        where + (_PAST if _is_past(files, name) else "Restore the data directory from a backup.")
    )


def without_remedy(error: Exception) -> str:
    """Return the text of an error without its remedy, for files that the current state does not need."""
    return re.split(r"\. (?:Nothing was changed|All other entries|Restore the file)", str(error))[0]


def unreadable(files: Files, error: OSError) -> StoreUnusable:
    """Return the error for a directory that the system cannot read."""
    return StoreUnusable(
        f"the journal in {files.path('')} cannot be read: {error}. Check the disk, and that this user may read the "
        "directory and the files in it."
    )


@contextlib.contextmanager
def reading(files: Files) -> Iterator[None]:
    """Raise `StoreUnusable` for any `OSError` while the context is open."""
    try:
        yield
    except OSError as error:
        raise unreadable(files, error) from error


def unrecoverable(files: Files, error: OSError) -> StoreUnusable:
    """Return the error for a recovery that ``error``, an error of the disk, has interrupted."""
    return StoreUnusable(
        f"the journal in {files.path('')} cannot be recovered: {error}. Check the disk and start again: no "
        "acknowledged write was discarded."
    )


def forked(files: Files, pid: int) -> ForkedStore:
    """Return the error for a journal of process ``pid`` that a fork of it uses."""
    return ForkedStore(
        f"the journal in {files.path('')} belongs to process {pid}, and this process is a fork of it. Open the "
        "store after the fork, or connect over a socket."
    )


def poisoned(files: Files, name: str, error: BaseException) -> str:
    """Return the reason why nothing more is written after this error in file ``name``."""
    return (
        f"{files.path(name)} could not be written: {error!r}. Commands have run whose changes are not durable, "
        "so no further command is answered. Check the disk and restart: writes that were acknowledged as "
        "durable are in the journal."
    )
