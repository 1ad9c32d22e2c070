"""CONFIG REWRITE and ACL SAVE replace a file as a whole and leave no password hashes in other files."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.config.loading import load
from headwater.server import replacement
from headwater.server.replacement import remove_unfinished, replace_file
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure

HASH = hashlib.sha256(b"moby-dick").hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "etc" / "headwater.conf"
    path.parent.mkdir()
    path.write_text("maxclients 50\n")
    path.chmod(0o640)
    yield path
    assert [each.name for each in path.parent.iterdir()] == [path.name], "another file is left"


def killed_in_the_middle(path: Path) -> None:
    """Run a process that writes hashes and is killed before the rename."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from headwater.server.replacement import replace_file\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "replace_file(Path(sys.argv[1]), sys.argv[2].encode())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path), HASH], check=False)
    assert done.returncode == -signal.SIGKILL


def leftovers(path: Path) -> list[Path]:
    return [each for each in path.parent.iterdir() if each != path]


@pytest.mark.parametrize("failing", ["fsync", "fchmod", "replace"])
def test_an_error_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path if failing == "replace" else os, failing, fail)
        with pytest.raises(OSError, match="No space"):
            replace_file(path, HASH.encode())
    assert path.read_text() == "maxclients 50\n"


@pytest.mark.parametrize("again", ["start", "rewrite"])
def test_a_file_left_by_a_crash_has_the_same_mode_and_is_removed_later(
    path: Path, again: str
) -> None:
    # Given a server that was killed while it wrote password hashes
    killed_in_the_middle(path)
    (left,) = leftovers(path)
    assert left.stat().st_mode & 0o777 == path.stat().st_mode & 0o777
    assert HASH in left.read_text()
    assert path.read_text() == "maxclients 50\n"

    # When a server starts, or writes the file again
    if again == "start":
        remove_unfinished(path)
    else:
        replace_file(path, b"maxclients 60\n")

    # Then the left file is removed
    assert leftovers(path) == []


def test_a_file_that_another_server_is_writing_is_not_removed(path: Path) -> None:
    temporary, descriptor = replacement._create_temporary(path)
    remove_unfinished(path)
    assert temporary.exists()
    os.close(descriptor)
    remove_unfinished(path)


def test_files_with_other_names_are_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "headwater.conf"
    others = [".headwater.conf.swp", ".headwater.conf.0123456789.old", ".other.0123456789.new"]
    for name in others:
        (tmp_path / name).write_text("")
    (tmp_path / ".headwater.conf.0123456789.new").mkdir()
    replace_file(path, b"")
    assert {each.name for each in tmp_path.iterdir()} == {
        *others,
        "headwater.conf",
        ".headwater.conf.0123456789.new",
    }


def test_mode_and_owner_of_the_old_file_are_preserved(path: Path) -> None:
    if os.getuid() == 0:
        os.chown(path, 12345, 23456)
    before = path.stat()
    replace_file(path, b"maxclients 60\n")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert after.st_ino != before.st_ino


def test_a_group_that_cannot_be_preserved_loses_its_permissions(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("needs a file of another group")
    os.chown(path, 12345, 23456)

    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    replace_file(path, b"")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_file_is_only_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        replace_file(tmp_path / "users.acl", b"user alice on\n")
    finally:
        os.umask(before)
    assert (tmp_path / "users.acl").stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_new_file_is_not_written_to(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a link under the name of the new file, as if another user had guessed it
    monkeypatch.setattr(secrets, "token_hex", lambda _count: "0123456789")
    victim = tmp_path / "victim"
    link = path.with_name(".headwater.conf.0123456789.new")
    link.symlink_to(victim)
    # Then the file is not replaced, and the link's target is not written
    with pytest.raises(FileExistsError):
        replace_file(path, HASH.encode())
    assert not victim.exists()
    assert path.read_text() == "maxclients 50\n"
    link.unlink()


@pytest.mark.parametrize("command", [("CONFIG", "REWRITE"), ("ACL", "SAVE")])
def test_a_failed_command_is_an_error_and_leaves_no_hashes(
    path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str]
) -> None:
    # Given a server with a user, and a disk that fails
    users = path.with_name("users.acl")
    if command == ("ACL", "SAVE"):
        users.write_text("user default on nopass ~* &* +@all\n")
        config = load(flags=[("aclfile", str(users))], file=path, environ={})
    else:
        config = load(file=path, environ={})
    client = LocalStore(journaled=False, config=config).client()
    client("ACL", "SETUSER", "alice", "on", ">moby-dick")

    def fail(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert isinstance(client(*command), Failure)
    assert all(HASH not in each.read_text() for each in path.parent.iterdir())
    users.unlink(missing_ok=True)
