"""General behaviour of the server: order, fairness, limits, the end of a connection.

Every test runs on both event loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import pytest
import redis

from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread
from tests.conformance.wire import SECONDS, Start, Wire, connected, encode, exchange, value_of
from tests.waiting import eventually


def until_blocked(server: ServerThread, count: int = 1) -> None:
    """Wait until ``count`` clients are blocked, as INFO shows it."""
    eventually(lambda: value_of(server, "blocked_clients") == str(count))


def test_replies_to_a_pipeline_of_ten_thousand_are_in_order(start: Start) -> None:
    server = start()
    requests = b"".join(encode("ECHO", f"{number}") for number in range(10_000))
    expected = b"".join(b"$%d\r\n%d\r\n" % (len(str(number)), number) for number in range(10_000))
    assert exchange(server.port, requests) == expected


def test_many_simultaneous_clients_get_their_own_replies(start: Start) -> None:
    # Given more clients than one turn serves
    server = start()
    with ExitStack() as stack:
        wires = [stack.enter_context(connected(server.port)) for _ in range(200)]
        for _ in range(3):
            # When all of them send before any reads
            for number, wire in enumerate(wires):
                wire.socket.sendall(encode("ECHO", f"{number:03}") * 3)

            # Then each gets its own replies
            for number, wire in enumerate(wires):
                expected = b"$3\r\n%03d\r\n" % number
                assert [wire.reply() for _ in range(3)] == [expected] * 3


def test_large_values_are_stored_and_returned_unchanged(start: Start) -> None:
    server, value = start(), bytes(range(256)) * 80_000
    with connected(server.port) as wire:
        assert wire.ask("SET", "k", value) == b"+OK\r\n"
        assert wire.ask("GET", "k") == b"$%d\r\n%b\r\n" % (len(value), value)


def test_a_client_that_reads_late_gets_everything_and_does_not_delay_others(start: Start) -> None:
    # Given a client that requests 60 MB and does not read
    server, value = start(), b"x" * 1_000_000
    with connected(server.port) as late, connected(server.port) as other:
        assert late.ask("SET", "k", value) == b"+OK\r\n"
        late.socket.sendall(encode("GET", "k") * 60)

        # When another client sends a request
        assert other.ask("PING") == b"+PONG\r\n"

        # Then it gets a reply, CLIENT LIST shows the unread output, and nothing of that is lost
        while b" cmd=get " not in (described := other.ask("CLIENT", "LIST")) or not any(
            int(line.split(b"omem=")[1].split()[0]) for line in described.split(b"\n")[1:-2]
        ):
            pass
        expected = b"$1000000\r\n" + value + b"\r\n"
        for _ in range(60):
            assert late.reply() == expected
        assert late.ask("PING") == b"+PONG\r\n"


def test_all_replies_arrive_after_the_client_has_ended_its_output(start: Start) -> None:
    server, value = start(), b"x" * 1_000_000
    answer = exchange(server.port, encode("SET", "k", value) + encode("GET", "k") * 20)
    assert len(answer) == 5 + 20 * (len(b"$1000000\r\n\r\n") + 1_000_000)


def test_an_incomplete_request_of_a_closed_connection_is_discarded(start: Start) -> None:
    server = start()
    for cut in (1, 10, 30):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(encode("XADD", "s", "*", "field", "value")[:cut])
    with connected(server.port) as wire:
        assert wire.ask("EXISTS", "s") == b":0\r\n"
        for _ in range(1_000):  # each makes the server check its sockets again
            if wire.ask("CLIENT", "LIST").count(b"id=") == 1:
                break
        assert wire.ask("CLIENT", "LIST").count(b"id=") == 1


def test_quit_gets_a_reply_and_closes_the_connection(start: Start) -> None:
    server = start()
    assert exchange(server.port, encode("QUIT") + encode("PING")) == b"+OK\r\n"


def test_a_blocked_reader_is_served_and_its_further_requests_run(start: Start) -> None:
    server = start()
    with connected(server.port) as reader, connected(server.port) as writer:
        reader.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$") + encode("PING"))
        until_blocked(server)
        assert writer.ask("XADD", "s", "5-1", "a", "b") == b"$3\r\n5-1\r\n"
        assert b"$3\r\n5-1\r\n" in reader.reply()
        assert reader.reply() == b"+PONG\r\n", "requests sent while blocked run afterwards"


def test_a_blocking_read_times_out_to_the_millisecond(start: Start) -> None:
    clock = ManualClock()
    server = start(clock=clock)
    with connected(server.port) as reader:
        reader.socket.sendall(encode("XREAD", "BLOCK", "30000", "STREAMS", "s", "$"))
        until_blocked(server)
        server.advance(29.999)
        assert value_of(server, "blocked_clients") == "1"
        server.advance(0.001)
        assert reader.reply() == b"*-1\r\n"


def test_a_blocked_client_that_disconnects_is_forgotten(start: Start) -> None:
    server = start()
    with connected(server.port) as reader:
        reader.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        until_blocked(server)
        reader.socket.shutdown(socket.SHUT_RDWR)
        until_blocked(server, 0)
    assert exchange(server.port, encode("XADD", "s", "1-1", "a", "b")) == b"$3\r\n1-1\r\n"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["TIMEOUT"], b"*-1\r\n"),
        ([], b"*-1\r\n"),
        (["ERROR"], b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
    ],
)
def test_client_unblock_ends_a_wait(start: Start, words: list[str], answer: bytes) -> None:
    server = start()
    with connected(server.port) as reader, connected(server.port) as admin:
        number = reader.ask("CLIENT", "ID")[1:-2]
        assert admin.ask("CLIENT", "UNBLOCK", number, *words) == b":0\r\n"
        reader.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        until_blocked(server)
        assert admin.ask("CLIENT", "UNBLOCK", number, *words) == b":1\r\n"
        assert reader.reply() == answer
        assert reader.ask("PING") == b"+PONG\r\n"


def test_client_kill_disconnects_clients_even_if_blocked(start: Start) -> None:
    server = start()
    with (
        connected(server.port) as first,
        connected(server.port) as waiting,
        connected(server.port) as admin,
    ):
        number = waiting.ask("CLIENT", "ID")[1:-2]
        waiting.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        until_blocked(server)
        assert admin.ask("CLIENT", "KILL", "ID", number) == b":1\r\n"
        assert waiting.reply() == b""
        host, port = first.socket.getsockname()
        assert admin.ask("CLIENT", "KILL", f"{host}:{port}") == b"+OK\r\n"
        assert first.reply() == b""
        assert admin.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == b":1\r\n"
        assert admin.reply() == b""
    assert value_of(server, "blocked_clients") == "0"


def test_client_list_shows_the_names_of_clients(start: Start) -> None:
    server = start()
    with redis.Redis(port=server.port, client_name="worker-7", db=3, protocol=3) as client:
        (shown,) = client.client_list()
        assert (shown["name"], shown["db"], shown["resp"]) == ("worker-7", "3", "3")
        assert (shown["lib-name"], shown["lib-ver"]) == ("redis-py", redis.__version__)
        assert shown["laddr"] == f"127.0.0.1:{server.port}"
        assert int(shown["tot-net-in"]) > 0
        info = client.client_info()
        assert info["id"] == client.client_id()


def test_hello_and_info_identify_the_server(start: Start) -> None:
    server = start()
    with redis.Redis(port=server.port, protocol=3) as client:
        hello = client.execute_command("HELLO", 3)
        assert hello[b"server"] == b"redis"
        assert hello[b"version"] == b"8.8.0"
        assert hello[b"proto"] == 3
        assert (hello[b"mode"], hello[b"role"]) == (b"standalone", b"master")
        assert hello[b"modules"] == []
        assert hello[b"server_name"] == b"headwater"
        info = client.info()
        assert info["redis_version"] == "8.8.0"
        assert info["redis_mode"] == "standalone"
        assert info["role"] == "master"
        assert info["loading"] == 0
        assert info["tcp_port"] == server.port
        assert info["connected_clients"] == 1
        assert client.info("replication").keys() >= {"role", "connected_slaves"}
        assert "redis_version" not in client.info("replication")
        client.set("k", "v", px=100_000)
        assert client.info("keyspace")["db0"]["keys"] == 1


def test_maxclients_limits_connections(start: Start) -> None:
    server = start(maxclients=2)
    with connected(server.port) as first, connected(server.port) as second:
        assert first.ask("PING") == second.ask("PING") == b"+PONG\r\n"
        with connected(server.port) as third:
            assert third.reply() == b"-ERR max number of clients reached\r\n"
            assert third.reply() == b""
        assert first.ask("CONFIG", "SET", "maxclients", "3") == b"+OK\r\n"
        with connected(server.port) as third:
            assert third.ask("PING") == b"+PONG\r\n"
        assert b"rejected_connections:1\r\n" in first.ask("INFO", "stats")
        assert first.ask("CONFIG", "RESETSTAT") == b"+OK\r\n"
        assert b"rejected_connections:0\r\n" in first.ask("INFO", "stats")


def own_address() -> str:
    """Return an address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no network")
    return address


def test_protected_mode_accepts_only_clients_of_this_machine(start: Start) -> None:
    # Given a server without a password that listens on all addresses
    server, address = start(bind=("*",)), own_address()

    def from_elsewhere() -> bytes:
        with socket.create_connection((address, server.port), timeout=SECONDS) as client:
            return Wire(client).ask("PING")

    # Then it rejects other machines until there is a password or protected-mode is off
    assert from_elsewhere().startswith(b"-DENIED Headwater is running in protected mode")
    with connected(server.port) as local:
        assert local.ask("CONFIG", "SET", "protected-mode", "no") == b"+OK\r\n"
        assert from_elsewhere() == b"+PONG\r\n"
        assert local.ask("CONFIG", "SET", "protected-mode", "yes", "requirepass", "s") == b"+OK\r\n"
        assert from_elsewhere() == b"-NOAUTH Authentication required.\r\n"
        assert local.ask("PING") == b"+PONG\r\n", "an open connection stays permitted"


@pytest.mark.slow
def test_an_idle_client_is_disconnected_and_a_blocked_one_is_not(start: Start) -> None:
    clock = ManualClock()
    server = start(clock=clock, timeout=10)
    with connected(server.port) as idle, connected(server.port) as waiting:
        assert idle.ask("PING") == b"+PONG\r\n"
        waiting.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        until_blocked(server)
        server.advance(11)
        assert idle.reply() == b""
        assert exchange(server.port, encode("XADD", "s", "1-1", "a", "b")) == b"$3\r\n1-1\r\n"
        assert b"1-1" in waiting.reply()


def test_config_set_changes_all_or_nothing_and_takes_effect_at_once(start: Start) -> None:
    server = start()
    with redis.Redis(port=server.port) as client:
        with pytest.raises(redis.ResponseError, match="stream-node-max-entries"):
            client.config_set("timeout", 7, "stream-node-max-entries", "x")
        assert client.config_get("timeout") == {"timeout": "0"}
        with pytest.raises(redis.ResponseError, match="a journal: restart it with save points"):
            client.config_set("save", "60 1")
        client.config_set("timeout", 7, "stream-node-max-entries", 3)
        assert client.config_get("timeout", "stream-node-max-e*") == {
            "timeout": "7",
            "stream-node-max-entries": "3",
        }
        for number in range(10):
            client.xadd("s", {"n": number})
        assert client.xtrim("s", maxlen=5, approximate=True) == 3
        assert client.config_get("*")["appendonly"] == "no"


def test_threads_with_a_common_pool_get_their_own_replies(start: Start) -> None:
    server = start()
    failures: list[object] = []
    with redis.Redis(port=server.port, max_connections=8) as client:

        def work(name: int) -> None:
            for number in range(200):
                word = f"{name}-{number}"
                if client.echo(word) != word.encode():
                    failures.append(word)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
