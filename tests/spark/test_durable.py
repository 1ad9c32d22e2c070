"""A file is replaced in one step, also if others replace it at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.spark.core.durable import replacing


def test_writers_that_replace_a_file_at_the_same_time_leave_one_whole_file(tmp_path: Path) -> None:
    # Given a file that four writers replace again and again, each with its own content
    path, texts, failed = tmp_path / "times.json", [str(n) * 10_000 for n in range(4)], []

    def write(text: str) -> None:
        try:
            for _ in range(25):
                with replacing(path) as temporary:
                    temporary.write_text(text)
                assert path.read_text() in texts
        except (OSError, AssertionError) as error:
            failed.append(error)

    # When they run at the same time
    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    # Then each was whole, and no other file is left
    assert failed == []
    assert [*tmp_path.iterdir()] == [path]


def test_a_failed_replacement_leaves_the_former_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        1 / 0  # noqa: B018
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]
