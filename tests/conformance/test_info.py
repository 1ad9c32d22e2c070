"""INFO has the fields that clients and exporters read, in the sections in which they expect them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from headwater.client.sync.connect import connect
from headwater.common.limits import MAX_ERROR_CODES
from headwater.config.config import Config
from headwater.errors import CommandError
from headwater.server.opening import open_node
from headwater.server.services.observability.info import render
from headwater.server.services.scripting.cache import MOST_FROM_EVAL
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalClient, LocalStore, request
from headwater.testing.replies import Failure, Simple
from headwater.testing.server import server_thread
from tests.conformance.wire import Start, Wire, connected, encode, value_of
from tests.peers import Peer
from tests.waiting import eventually

READ = {
    "ioredis, redis-py": "loading",
    "valkey-glide": "role",
    "RedisInsight": "redis_version redis_mode os uptime_in_days used_memory used_memory_human "
    "connected_clients total_commands_processed instantaneous_ops_per_sec "
    "instantaneous_input_kbps instantaneous_output_kbps used_cpu_sys used_cpu_user",
    "redis-cli --stat": "used_memory_human connected_clients blocked_clients "
    "total_commands_processed total_connections_received rdb_bgsave_in_progress "
    "aof_rewrite_in_progress loading",
    "redis_exporter": "redis_build_id tcp_port process_id run_id master_replid maxmemory_policy "
    "uptime_in_seconds clients_in_timeout_table pubsub_clients watching_clients "
    "total_watched_keys total_blocking_keys total_blocking_keys_on_nokey maxclients "
    "tracking_clients client_recent_max_input_buffer client_recent_max_output_buffer "
    "used_memory_rss used_memory_peak total_system_memory maxmemory mem_fragmentation_ratio "
    "mem_clients_normal active_defrag_running lazyfree_pending_objects number_of_cached_scripts "
    "rdb_changes_since_last_save rdb_last_save_time rdb_last_bgsave_status "
    "rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec aof_enabled aof_rewrite_scheduled "
    "aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status "
    "aof_last_write_status aof_current_size aof_base_size aof_delayed_fsync "
    "total_net_input_bytes total_net_output_bytes rejected_connections expired_keys "
    "evicted_keys pubsub_channels pubsub_patterns latest_fork_usec total_error_replies "
    "total_reads_processed total_writes_processed acl_access_denied_auth "
    "acl_access_denied_cmd acl_access_denied_key acl_access_denied_channel connected_slaves "
    "repl_backlog_active repl_backlog_size master_repl_offset second_repl_offset "
    "used_cpu_sys_children used_cpu_user_children cluster_enabled",
}


def info_of(client: LocalClient, *sections: str) -> dict[str, str]:
    text = client("INFO", *sections)
    assert isinstance(text, bytes)
    lines = [line for line in text.decode().split("\r\n") if ":" in line]
    return dict(line.split(":", 1) for line in lines)


def headings(text: bytes) -> list[bytes]:
    return [line[2:] for line in text.split(b"\r\n") if line.startswith(b"# ")]


def test_a_long_first_word_of_an_error_is_not_a_code(store: LocalStore) -> None:
    # Given errors whose first word has so many bytes; Redis counts up to 30 as a code
    observer = store.node.observer
    for length in (29, 30, 31, 32, 500_000):
        observer.count_error(CommandError("X" * length + " text"))
    # Then the longer ones count as ERR
    assert observer.errors == {"X" * 29: 1, "X" * 30: 1, "ERR": 3}


def test_a_setting_has_no_value_of_unlimited_length(store: LocalStore) -> None:
    client = store.client()
    for name in ("requirepass", "masterauth", "proc-title-template"):
        for value in ("v" * 100_000, "é" * 40_000):
            refused = client("CONFIG", "SET", name, value)
            assert isinstance(refused, Failure)
            assert refused.text.endswith(b"- a value has at most 65536 bytes")
    assert client("CONFIG", "SET", "masterauth", "v" * 60_000) == Simple(b"OK")


@pytest.mark.parametrize("sent", ["WATCH", "SUBSCRIBE"])
def test_the_memory_of_a_client_is_in_the_list_of_clients(store: LocalStore, sent: str) -> None:
    # Given a client, and what INFO and CLIENT LIST show of it
    client, admin = store.client(), store.client()

    def shown() -> tuple[int, int]:
        lines = admin("CLIENT", "LIST", "ID", client.session.id)
        assert isinstance(lines, bytes)
        return (
            int(lines.partition(b"tot-mem=")[2].split()[0]),
            int(info_of(admin, "memory")["mem_clients_normal"]),
        )

    before = shown()
    # When it watches keys or subscribes to channels
    for number in range(500):
        client(sent, f"name{number}")
    after = shown()
    # Then both show it
    assert after[0] - before[0] > 500 * 64
    assert after[1] - before[1] > 500 * 200


def test_a_killed_store_names_the_history_that_it_left() -> None:
    # Given a store with an entry, in its first history
    files = CrashableFiles()
    with connect(node=open_node(Config(appendfsync="always"), files=files)) as client:
        client.xadd("s", {"field": "value"})
        before = client.info("replication")
        (image,) = files.crash_images(seed=0, count=1)
    assert (before["master_replid2"], before["second_repl_offset"]) == (0, -1)  # 40 zeros
    # When it is killed and starts again
    with connect(node=open_node(Config(), files=image)) as client:
        found = client.info("replication")
    # Then it has another history from the next byte on
    offset = before["master_repl_offset"]
    assert found["master_replid"] != before["master_replid"]
    assert found["master_replid2"] == before["master_replid"]
    assert (found["master_repl_offset"], found["second_repl_offset"]) == (offset, offset + 1)


@pytest.mark.parametrize("who", READ)
def test_fields_that_a_client_reads_exist(who: str, store: LocalStore) -> None:
    assert set(READ[who].split()) <= info_of(store.client()).keys()


@pytest.mark.peer
@pytest.mark.parametrize("who", READ)
def test_fields_that_a_client_reads_have_redis_names(
    who: str, shared_peer: Callable[[str], Peer]
) -> None:
    of_a_journal = {"aof_current_size", "aof_base_size", "aof_delayed_fsync"}
    with connected(shared_peer("redis-8.2").port) as wire:
        text = wire.ask("INFO").decode()
    names = {line.split(":", 1)[0] for line in text.split("\r\n")}
    assert set(READ[who].split()) - of_a_journal <= names


@pytest.mark.peer
@pytest.mark.parametrize(
    "sections",
    [(), ("default",), ("all",), ("everything",), ("server", "KEYSPACE"), ("nosuch",),
     ("commandstats", "nosuch"), ("default", "latencystats")],
    ids=" ".join,
)  # fmt: skip
def test_the_sections_are_those_of_redis(
    sections: tuple[str, ...], store: LocalStore, shared_peer: Callable[[str], Peer]
) -> None:
    absent = {b"Keysizes"}
    with connected(shared_peer("redis-8.2").port) as wire:
        theirs = [one for one in headings(wire.ask("INFO", *sections)) if one not in absent]
    text = store.client()("INFO", *sections)
    assert isinstance(text, bytes)
    assert headings(text) == theirs


def test_the_keyspace_is_counted(store: LocalStore) -> None:
    client = store.client()
    client("SET", "a", "1")
    client("SET", "b", "1", "PX", 60_000)
    client("SELECT", 3)
    client("XADD", "s", "*", "f", "v")
    keyspace = info_of(client, "keyspace")
    assert keyspace == {
        "db0": "keys=2,expires=1,avg_ttl=60000,subexpiry=0",
        "db3": "keys=1,expires=0,avg_ttl=0,subexpiry=0",
    }
    store.advance(60)
    assert info_of(client, "keyspace")["db0"] == "keys=1,expires=0,avg_ttl=0,subexpiry=0"
    assert info_of(client, "stats")["expired_keys"] == "1"
    client("CONFIG", "RESETSTAT")
    assert info_of(client, "stats")["expired_keys"] == "0"


def test_blocked_and_watching_clients_are_counted_by_their_keys() -> None:
    store = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
    admin, one, two, three = (store.client() for _ in range(4))
    admin("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    one.send("XREAD", "BLOCK", 0, "STREAMS", "s", "t", "$", "$")
    two.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 5000, "STREAMS", "s", ">")
    three("WATCH", "a", "b")
    clients = info_of(admin, "clients")
    assert clients["blocked_clients"] == "2"
    assert clients["clients_in_timeout_table"] == "1"
    assert clients["total_blocking_keys"] == "2"
    assert clients["watching_clients"] == "1"
    assert clients["total_watched_keys"] == "2"


def blocking_key_counts(admin: Wire) -> list[str]:
    text = admin.ask("INFO", "clients").decode()
    found = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
    return [found[name] for name in ("total_blocking_keys", "total_blocking_keys_on_nokey")]


def counts_while_blocking(port: int, *, list_first: bool) -> list[list[str]]:
    """Return the counts while clients of lists, streams and groups wait for a common key and others.
    ``list_first``: the client of the list has the older of two connections."""
    with connected(port) as admin, connected(port) as one, connected(port) as two:
        of_list, of_group = (one, two) if list_first else (two, one)
        with connected(port) as other:
            of_list.socket.sendall(encode("BLPOP", "k", "l", "0"))
            until_waiting(admin, 1)
            found = [blocking_key_counts(admin)]
            admin.ask("XGROUP", "CREATE", "k", "g", "$", "MKSTREAM")
            of_group.socket.sendall(
                encode("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "k", ">")
            )
            until_waiting(admin, 2)
            found.append(blocking_key_counts(admin))
            other.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "k", "x", "$", "$"))
            until_waiting(admin, 3)
            found.append(blocking_key_counts(admin))
            admin.ask("DEL", "k")
            of_group.reply()
            until_waiting(admin, 2)
            found.append(blocking_key_counts(admin))
    return found


def until_waiting(admin: Wire, count: int) -> None:
    eventually(lambda: b"\r\nblocked_clients:%d\r\n" % count in admin.ask("INFO", "clients"))


@pytest.mark.peer
@pytest.mark.parametrize("version", ["redis-8.2", "valkey-9.1"])
@pytest.mark.parametrize("list_first", [True, False])
def test_keys_of_blocked_clients_are_counted_as_in_redis(
    list_first: bool, version: str, shared_peer: Callable[[str], Peer]
) -> None:
    with server_thread() as server:
        ours = counts_while_blocking(server.port, list_first=list_first)
    assert ours == counts_while_blocking(shared_peer(version).port, list_first=list_first)
    assert ours[1] == ["2", "1"]


def test_the_state_of_the_journal_is_a_number() -> None:
    def state(store: LocalStore) -> tuple[str, str]:
        text = render(store.node.services, {"persistence"}).decode()
        found = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
        return found["journal_state"], found["aof_last_write_status"]

    # Given a journal that accepts writes
    store = LocalStore()
    client = store.client()
    client("SET", "k", "v")
    assert state(store) == ("0", "ok")
    # When the disk is full, then it refuses writes until there is room
    assert store.files is not None
    store.files.capacity = 0
    while not isinstance(client("SET", "k", bytes(100_000)), Failure):
        pass
    assert state(store) == ("1", "err")
    assert info_of(client, "persistence")["journal_state"] == "1"
    store.files.capacity = None
    assert client("SET", "k", bytes(100_000)) == Simple(b"OK")
    assert state(store) == ("0", "ok")
    # When an fsync fails, then the journal has failed for good
    store.files.fail("sync")
    client.send("SET", "k", "v")
    assert state(store) == ("2", "err")


def test_scripts_are_counted() -> None:
    client = LocalStore().client()
    assert info_of(client, "memory")["number_of_cached_scripts"] == "0"
    client("SCRIPT", "LOAD", "return 1")
    assert info_of(client, "memory")["number_of_cached_scripts"] == "1"


def test_scripts_that_gave_way_to_others_are_counted() -> None:
    client = LocalStore().client()
    client("SCRIPT", "LOAD", "return 'loaded'")
    for number in range(MOST_FROM_EVAL + 3):
        client("EVAL", f"return {number}", 0)
    assert info_of(client, "stats")["evicted_scripts"] == "3"
    assert info_of(client, "memory")["number_of_cached_scripts"] == str(MOST_FROM_EVAL + 1)
    client("CONFIG", "RESETSTAT")
    assert info_of(client, "stats")["evicted_scripts"] == "0"


def test_unread_output_of_a_client_is_counted_once() -> None:
    # Given a reply of a megabyte that its client does not read
    store = LocalStore()
    admin, slow = store.client(), store.client()
    admin("SET", "large", bytes(1024 * 1024))
    before = int(info_of(admin, "memory")["mem_clients_normal"])
    slow.session.feed(request(("GET", "large")))
    store.node.turn([slow.session])
    # Then INFO counts it once
    assert int(info_of(admin, "clients")["client_recent_max_output_buffer"]) > 1024 * 1024
    taken = int(info_of(admin, "memory")["mem_clients_normal"]) - before
    assert 1024 * 1024 < taken < 1.5 * 1024 * 1024
    # And no longer after it has been read
    assert slow.reply() == bytes(1024 * 1024)
    assert int(info_of(admin, "clients")["client_recent_max_output_buffer"]) < 1024


def counted(port: int) -> list[object]:
    """Return the number of a client's commands after each request, and check that of objects freed lazily."""
    found: list[object] = []
    with connected(port) as wire:
        wire.ask("CONFIG", "RESETSTAT")
        for words in (
            *(("PING",), ("NOSUCH",), ("SET", "a"), ("MULTI",), ("GET", "a"), ("EXEC",)),
            *(
                ("EVAL", "redis.call('ping') return redis.call('get', 'a')", "0"),
                ("AUTH", "x", "y"),
            ),
            *(("BLPOP", "no", "0.01"), ("RESET",), ("CONFIG", "RESETSTAT")),
        ):
            wire.ask(*words)
            if words[0] not in {"MULTI", "GET"}:
                found.append(wire.ask("CLIENT", "INFO").partition(b" tot-cmds=")[2].split()[0])
        wire.ask("RPUSH", "few", *"abc")
        wire.ask("SADD", "many", *map(str, range(1000)), "x")
        for freed, line in enumerate(("UNLINK few", "UNLINK many", "FLUSHALL ASYNC")):
            wire.ask("SET", "k", "1")
            wire.ask(*line.split())
            eventually(partial(has_freed, wire, freed), f"{freed} objects are freed")
        wire.ask("CONFIG", "RESETSTAT")
        assert has_freed(wire, 0)
    return found


def has_freed(wire: Wire, count: int) -> bool:
    return b"\r\nlazyfreed_objects:%d\r\n" % count in wire.ask("INFO", "memory")


@pytest.mark.peer
def test_commands_of_a_client_and_lazily_freed_objects_are_counted_as_in_redis(
    shared_peer: Callable[[str], Peer],
) -> None:
    with server_thread(Config(port=0, appendonly=False, save=())) as server:
        ours = counted(server.port)
    assert ours == counted(shared_peer("redis-8.2").port)


@pytest.mark.slow
def test_the_event_loop_is_measured_as_in_redis(start: Start) -> None:
    # Given the counters of a server that has served something
    server = start()
    names = ("eventloop_cycles", "eventloop_duration_sum", "eventloop_duration_cmd_sum")

    def counters() -> list[int]:
        return [int(value_of(server, name)) for name in names]

    with connected(server.port) as wire:
        wire.ask("KEYS", "*")
        before = counters()
        assert min(before) > 0
        # When it serves more, then each has grown
        for _ in range(100):
            wire.ask("KEYS", "*")
        after = counters()
        assert all(more > less for less, more in zip(before, after, strict=True))
        assert after[0] >= before[0] + 100
        # And rates are there after two samples, also if no client asks for anything
        eventually(
            lambda: int(value_of(server, "instantaneous_eventloop_cycles_per_sec")) > 0, "a rate"
        )
        assert int(value_of(server, "instantaneous_eventloop_duration_usec")) > 0
        # And CONFIG RESETSTAT begins again
        wire.ask("CONFIG", "RESETSTAT")
        assert counters()[0] < 20


def test_the_thread_and_the_allocator_are_shown_as_in_redis(start: Start) -> None:
    server = start()
    with connected(server.port) as wire, connected(server.port):
        text = wire.ask("INFO", "threads")
        assert text.split(b"\r\n")[1:3] == [
            b"# Threads", b"io_thread_0:clients=2,reads=1,writes=0"
        ]  # fmt: skip
    memory = {name: float(value_of(server, name)) for name in (
        "used_memory", "used_memory_rss", "allocator_allocated", "allocator_resident",
        "allocator_frag_bytes", "allocator_frag_ratio",
    )}  # fmt: skip
    assert memory["allocator_allocated"] > 0
    assert memory["allocator_resident"] >= memory["allocator_frag_bytes"] > 0
    assert memory["allocator_frag_ratio"] > 1


def test_more_codes_of_errors_than_info_shows_are_reported_once(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    client = store.client()
    for number in range(MAX_ERROR_CODES + 100):
        client("EVAL", "return redis.error_reply(ARGV[1] .. ' text')", 0, f"CODE{number}")
    (line,) = [one.getMessage() for one in caplog.records if "Errorstats" in one.getMessage()]
    assert line.startswith("Errorstats stopped adding new errors because")
    assert "Current errors code list: CODE0, CODE1, " in line
    assert info_of(client, "errorstats") == {"errorstat_ERRORSTATS_DISABLED": "count=1"}
    assert info_of(client, "memory")["lazyfreed_objects"] == str(MAX_ERROR_CODES)
