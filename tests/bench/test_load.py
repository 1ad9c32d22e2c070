"""The load generator counts completed operations, and ends at any error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from benchmarks import load
from headwater.testing.server import ServerThread, server_thread
from tests.bench.scripted import scripted

pytestmark = pytest.mark.usefixtures("program")

SECONDS = 0.05
PING = load.request(b"PING")


@pytest.fixture
def server() -> Iterator[ServerThread]:
    """A Headwater server."""
    with server_thread() as running:
        yield running


def to(port: int, mode: str, *words: object, requests: tuple[bytes, ...] = ()) -> load.Sample:
    """Run the program against a port, without measuring a server process."""
    return load.run(mode, "127.0.0.1", port, 0, *words, requests=requests)


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_error_ends_it_with_the_servers_message(server: ServerThread) -> None:
    wrong = load.request(b"XADD", b"s", b"0-0", b"a", b"b")
    with pytest.raises(load.LoadFailed, match=r"must be greater than 0-0[\s\S]*was an error"):
        to(server.port, "repeat", SECONDS, 1, 1, requests=(PING, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["repeat", "same", "times"])
def test_an_error_in_pieces_ends_it(mode: str) -> None:
    pieces = [bytes([byte]) for byte in b"-ERR refused\r\n"]
    with scripted(pieces) as port, pytest.raises(load.LoadFailed, match="ERR refused"):
        to(port, mode, 1, 1, 1, requests=(PING,))


def test_an_error_after_good_replies_ends_it() -> None:
    with scripted([b"+PONG\r\n+PONG\r\n", b"-ERR refused\r\n"]) as port:
        with pytest.raises(load.LoadFailed, match="ERR refused"):
            to(port, "repeat", SECONDS, 1, 3, requests=(PING,))


def test_an_error_instead_of_a_known_reply_is_found() -> None:
    # Given a reply that a request has received twice
    answer = b"$100\r\n" + b"x" * 100 + b"\r\n"
    error = b"-ERR " + b"y" * (len(answer) - 7) + b"\r\n"
    assert len(error) == len(answer)
    # When the same request gets an error of the same size
    with scripted([answer], [answer], [error]) as port:
        # Then the error is found
        with pytest.raises(load.LoadFailed, match="ERR yyy"):
            to(port, "same", 1, 1, 1, requests=(PING,))


def test_a_short_reply_instead_of_a_known_long_one_is_read() -> None:
    # Given a reply that a request has received
    answer = b"$100\r\n" + b"x" * 100 + b"\r\n"
    # When it receives an empty one, and the long one again in pieces
    pieces = [answer[at : at + 7] for at in range(0, len(answer), 7)]
    with scripted([answer], [b"*0\r\n"], pieces, [b"-ERR the end\r\n"]) as port:
        # Then all are read up to the error
        with pytest.raises(load.LoadFailed, match="ERR the end"):
            to(port, "same", 5, 1, 1, requests=(PING,))


def test_a_reply_with_another_end_ends_it() -> None:
    answer = b"$200\r\n" + b"x" * 200 + b"\r\n"
    with scripted([answer], [answer[:-3] + b"y\r\n"]) as port:
        with pytest.raises(load.LoadFailed, match="does not end as it did"):
            to(port, "same", 5, 1, 1, requests=(PING,))


def test_replies_in_pieces_are_counted_once_each(server: ServerThread) -> None:
    # Given a reply that is larger than one read of a connection
    to(server.port, "fill", "s", 1, 20_000, "a", "b" * 100)
    everything = load.request(b"XRANGE", b"s", b"-", b"+")
    sample = to(server.port, "same", 0.3, 3, 1, requests=(everything, PING))
    # Then the server has sent as many replies as were counted, except for the last ones
    with redis.Redis.from_url(server.url) as client:
        calls = client.info("commandstats")["cmdstat_xrange"]["calls"]
    assert 0 < sample.operations <= 2 * calls + 3


def test_a_connection_that_is_closed_ends_it() -> None:
    with scripted() as port:
        pass  # nothing listens at the port after the block
    with pytest.raises(load.LoadFailed, match="connect"):
        to(port, "repeat", SECONDS, 1, 1, requests=(PING,))


def test_data_that_are_not_resp_end_it() -> None:
    with scripted([b"HTTP/1.1 400\r\n"]) as port:
        with pytest.raises(load.LoadFailed, match="not valid RESP"):
            to(port, "repeat", SECONDS, 1, 1, requests=(PING,))


def test_more_replies_than_requests_end_it() -> None:
    with scripted([b"+PONG\r\n+PONG\r\n"]) as port:
        with pytest.raises(load.LoadFailed, match="more replies"):
            to(port, "repeat", SECONDS, 1, 1, requests=(PING,))


def test_a_server_without_replies_gives_an_error() -> None:
    with scripted([b""]) as port, pytest.raises(load.LoadFailed, match="no reply"):
        to(port, "repeat", SECONDS, 1, 1, requests=(PING,))


def test_entries_that_were_read_but_not_acknowledged_end_it() -> None:
    # Given two entries, of which the server reports one as acknowledged
    entry = b"*2\r\n$3\r\n%d-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"
    entries = b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n" + entry % 1 + entry % 2
    with scripted([entries], [b":1\r\n"]) as port:
        with pytest.raises(load.LoadFailed, match="fewer entries were acknowledged"):
            to(port, "consume", SECONDS, 1, 10, "ack", "s", "g")


def test_half_a_request_is_refused() -> None:
    with pytest.raises(load.LoadFailed, match="whole requests"):
        to(1, "repeat", SECONDS, 1, 1, requests=(PING[:-1],))


def test_a_wrong_command_line_is_refused() -> None:
    with pytest.raises(load.LoadFailed, match="unknown mode"):
        to(1, "repeet", SECONDS, 1, 1)


# --- modes -----------------------------------------------------------------------------------------


def test_the_server_has_done_all_counted_operations(server: ServerThread) -> None:
    # When entries are added over several connections, a known number of them
    add = load.request(b"XADD", b"s", b"*", b"a", b"b")
    sample = to(server.port, "times", 1234, 3, 10, requests=(add,) * 7)
    # Then the stream has the same number of entries
    with redis.Redis.from_url(server.url) as client:
        assert client.xlen("s") == sample.operations == 1234
    assert sample.rate > 0


def test_only_operations_that_the_server_has_done_are_counted(server: ServerThread) -> None:
    add = load.request(b"XADD", b"s", b"*", b"a", b"b")
    sample = to(server.port, "repeat", SECONDS, 4, 8, requests=(add,))
    with redis.Redis.from_url(server.url) as client:
        assert 0 < sample.operations <= client.xlen("s")


def test_filling_makes_the_same_entries_every_time(server: ServerThread) -> None:
    for key in ("one", "other"):
        to(server.port, "fill", key, 5, 1204, "item", "tea-##")
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        entries = client.xrange("one")
        assert [entry_id for entry_id, _ in entries] == [f"{number}-1" for number in range(5, 1205)]
        assert len({fields["item"] for _, fields in entries}) == 100
        assert entries == client.xrange("other")


@pytest.mark.parametrize("way", ["ack", "settle", "claim"])
def test_consumers_acknowledge_what_they_read_and_begin_again(
    server: ServerThread, way: str
) -> None:
    # Given fewer entries than the consumers can read in that time
    to(server.port, "fill", "s", 1, 40, "a", "b")
    with redis.Redis.from_url(server.url) as client:
        client.xgroup_create("s", "g", "0")
        # When four consumers read them again and again
        sample = to(server.port, "consume", 0.2, 4, 3, way, "s", "g")
        # Then all are acknowledged, except for the last ones
        assert sample.operations > 40
        assert client.xpending("s", "g")["pending"] <= 4 * 3


def test_blocked_readers_get_entries_at_the_given_rate(server: ServerThread) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.xgroup_create("s", "g", "$", mkstream=True)
        sample = to(server.port, "deliver", 0.2, 3, 1000, "s", "g")
        assert 0 < sample.operations <= client.xlen("s")
    assert 0 < sample.p50_us <= sample.p99_us <= sample.p999_us


@pytest.mark.slow
def test_changed_sources_are_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Given the sources with an error in one of them
    copied = tmp_path / "load"
    copied.mkdir()
    for file in load.SOURCES.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    (copied / "load.c").write_text("int main(void) { return nothing; }\n")
    monkeypatch.setattr(load, "SOURCES", copied)
    monkeypatch.setattr(load, "BUILT", tmp_path / "build")
    # Then they are compiled, and the earlier build is not used
    with pytest.raises(load.LoadFailed, match="nothing"):
        load.program.__wrapped__()
