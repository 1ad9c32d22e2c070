"""What others wrote reaches the terminal quoted, in every table and line: it neither acts nor forges a row."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest
import redis

from headwater.common.names import quoted, text_of
from headwater.messages.dead import dead_letter_fields
from headwater.messages.keys import dead_letter_stream

Run = Callable[..., str]

HOSTILE = b"a\n1-1  forged\r\x1b[2J\xff\x00\x9b\xe2\x80\xae\xc2\x9b\x7f"
STREAM, GROUP, CONSUMER = (word + HOSTILE for word in (b"s", b"g", b"c"))
QUOTED = r"a\n1-1  forged\r\x1b[2J\xff\x00\x9b\xe2\x80\xae\xc2\x9b\x7f"

LOOKS = (
    "streams list",
    "groups list",
    "groups list STREAM",
    "lag STREAM",
    "tail STREAM",
    "pending list STREAM",
    "pending list STREAM GROUP",
    "pending show STREAM GROUP ID",
    "consumers list STREAM GROUP",
    "explain --window 0s",
    "explain STREAM GROUP --window 0s",
    "explain STREAM GROUP ID",
    "dead list STREAM",
    "dead show STREAM ID",
    "groups reset STREAM GROUP --to 0 --dry-run",
    "streams trim STREAM --maxlen 0 --dry-run",
    "pending release STREAM GROUP --all --dry-run",
)

ID = "1526569498055-0"


@pytest.fixture
def words(
    headwater_url: str, store_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    """The words of a command, on a store in which every name and value is hostile."""
    monkeypatch.setenv("HEADWATER_URL", store_url("headwater"))
    names = {"STREAM": text_of(STREAM), "GROUP": text_of(GROUP), "ID": ID}
    with redis.Redis.from_url(headwater_url) as client:
        client.xadd(STREAM, {HOSTILE: HOSTILE}, id=ID)
        client.xgroup_create(STREAM, GROUP, "0")
        client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"})
        fields = dead_letter_fields(
            [HOSTILE, HOSTILE],
            stream=names["STREAM"],
            group=names["GROUP"],
            entry_id=ID,
            consumer=text_of(CONSUMER),
            deliveries=1,
            error=f"ValueError: {text_of(HOSTILE)}",
            trace="",
            at_ms=1526569498055,
        )
        client.xadd(
            dead_letter_stream(names["STREAM"]).encode("utf-8", "surrogateescape"),
            dict(fields),
            id=ID,
        )
    return lambda text: [names.get(word, word) for word in shlex.split(text)]


@pytest.mark.parametrize("look", LOOKS)
def test_no_byte_of_a_message_acts_on_the_terminal_or_adds_a_line(
    look: str, words: Callable[[str], list[str]], run_headwater: Run
) -> None:
    # Given a store whose names and values hold control sequences, line ends and what is not UTF-8
    # When it is looked at
    printed = run_headwater(*words(look))
    # Then each line is printable
    lines = printed.splitlines()
    assert [line for line in lines if not line.isprintable()] == []
    # And none is forged
    assert not any(line.lstrip().startswith("1-1") for line in lines)
    assert QUOTED in printed or "GROUP" not in look


@pytest.mark.parametrize("look", [one for one in LOOKS if "explain" not in one])
def test_as_json_every_byte_is_kept_and_none_acts(
    look: str, words: Callable[[str], list[str]], run_headwater: Run
) -> None:
    printed = run_headwater(*words(look), "-o", "json")
    assert [line for line in printed.splitlines() if not line.isprintable()] == []
    assert json.loads(printed.splitlines()[0] if look.startswith("tail") else printed)


def test_in_json_a_raw_byte_differs_from_the_text_of_its_escape(
    words: Callable[[str], list[str]], headwater_url: str, run_headwater: Run
) -> None:
    # Given a raw byte and the four characters with which it is shown
    with redis.Redis.from_url(headwater_url) as client:
        client.xadd("both", {"raw": b"\xff", "text": rb"\xff"})
    # When they are printed
    lines = run_headwater("tail", "both", "-o", "json")
    fields = dict(json.loads(lines)["fields"])
    # Then each is what it was
    assert fields == {"raw": "\udcff", "text": r"\xff"}
    assert run_headwater("tail", "both").split("  ")[1:] == [r'raw="\xff"', "text=\\xff\n"]


def test_a_csv_has_one_shape_and_a_header_whatever_it_lists(
    words: Callable[[str], list[str]], headwater_url: str, run_headwater: Run
) -> None:
    # Given entries with different fields
    with redis.Redis.from_url(headwater_url) as client:
        client.xadd("mixed", {"a": "1"})
        client.xadd("mixed", {"b": "x,y", "c": 'say "z"'})
    # When they are listed
    rows = list(csv.reader(io.StringIO(run_headwater("tail", "mixed", "-o", "csv"))))
    # Then each row has the same columns
    assert rows[0] == ["id", "fields"]
    assert [json.loads(row[1]) for row in rows[1:]] == [
        [["a", "1"]],
        [["b", "x,y"], ["c", 'say "z"']],
    ]
    # And a value with a carriage return is in one cell
    with redis.Redis.from_url(headwater_url) as client:
        client.xgroup_create("mixed", "a\rb", "0")
    listed = run_headwater("groups", "list", "mixed", "-o", "csv")
    _head, cells = csv.reader(io.StringIO(listed, newline=""))
    assert cells[1] == "a\rb"
    with redis.Redis.from_url(headwater_url) as client:
        client.xgroup_destroy("mixed", "a\rb")
    # And an empty list has the header too
    for look in ("streams list no", "groups list mixed", "lag mixed", "dead list mixed"):
        assert len(run_headwater(*look.split(), "-o", "csv").splitlines()) == 1, look


def test_names_in_other_scripts_are_shown_as_they_are() -> None:
    assert [quoted(one) for one in ("straße", "заказы", "注文", "commande-été")] == [
        "straße",
        "заказы",
        "注文",
        "commande-été",
    ]


def test_a_server_that_does_not_start_quotes_what_it_was_given() -> None:
    words = ["serve", "--config", "/nonexistent\x1b[31m"]
    done = subprocess.run(
        [sys.executable, "-m", "headwater", *words], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert r"/nonexistent\x1b[31m" in done.stderr
    assert "\x1b" not in done.stderr
