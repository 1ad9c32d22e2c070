"""WAITAOF and WAIT: a client's writes are durable when WAITAOF says so, and not before."""

from __future__ import annotations

from headwater.config.config import Config
from headwater.journal.log.journal import Journal
from headwater.persistence.replaying import recovered_keyspace
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalClient, LocalStore, request
from headwater.testing.replies import Failure, Simple

NEVER_S = 1e6


class ManuallyFlushedStore(LocalStore):
    """A store whose background fsync runs when the test calls `flush`."""

    def _open(self) -> Node:
        assert self.files is not None
        journal = Journal.open(
            self.files,
            policy="everysec",
            file_bytes=1024 * 1024,
            clock=self.clock,
            flush_interval=NEVER_S,
        )
        keyspace = recovered_keyspace(journal)
        return Node(keyspace=keyspace, journal=journal, config=self.config, clock=self.clock)

    def flush(self) -> None:
        """Run one background fsync."""
        journal = self.node.journal
        assert journal is not None
        assert journal._flusher.flush_once()


def opened() -> tuple[ManuallyFlushedStore, LocalClient, LocalClient]:
    store = ManuallyFlushedStore(clock=ManualClock())
    return store, store.client(), store.client()


def check_reply_after_flush(store: ManuallyFlushedStore, client: LocalClient) -> None:
    """Check that a blocked client gets its reply after the next fsync, not before."""
    store.advance(0.5)
    assert client.reply() is None
    store.flush()
    store.advance(0.01)
    assert client.reply() == [1, 0]


def test_waitaof_waits_for_the_fsync_of_the_clients_writes() -> None:
    # Given a write that is not durable yet
    store, writer, other = opened()
    writer("XADD", "s", "1-1", "a", "1")
    writer.send("WAITAOF", 1, 0, 0)
    store.advance(0.5)
    assert writer.reply() is None

    # Then a client without writes need not wait
    assert other("WAITAOF", 1, 0, 0) == [1, 0]

    # When it is flushed, the reply arrives; the write is then on disk
    store.flush()
    store.advance(0.01)
    assert writer.reply() == [1, 0]
    store.crash()
    assert store.client()("XLEN", "s") == 1
    store.node.close()


def test_a_write_of_the_same_pipeline_counts() -> None:
    store, writer, _ = opened()
    writer.session.feed(request(("SET", "k", "1")) + request(("WAITAOF", 1, 0, 0)))
    store.node.turn([writer.session])
    assert writer.reply() == Simple(b"OK")
    check_reply_after_flush(store, writer)
    store.node.close()


def test_an_fsync_before_the_write_does_not_count() -> None:
    store, writer, other = opened()
    other("SET", "k", "1")
    store.flush()
    writer("SET", "k", "2")
    writer.send("WAITAOF", 1, 0, 0)
    check_reply_after_flush(store, writer)
    store.node.close()


def test_after_the_timeout_the_reply_has_the_current_state() -> None:
    store, writer, admin = opened()
    writer("SET", "k", "1")
    writer.send("WAITAOF", 1, 0, 300)
    store.advance(0.3)
    assert writer.reply() == [0, 0]

    # WAITAOF also waits for a replica that does not exist.
    writer.send("WAITAOF", 1, 1, 300)
    store.flush()
    store.advance(0.3)
    assert writer.reply() == [1, 0]

    # And CLIENT UNBLOCK ends the wait early.
    writer("SET", "k", "2")
    writer.send("WAITAOF", 1, 0, 0)
    assert admin("CLIENT", "UNBLOCK", writer.session.id) == 1
    assert writer.reply() == [0, 0]
    writer.send("WAITAOF", 1, 0, 0)
    assert admin("CLIENT", "UNBLOCK", writer.session.id, "ERROR") == 1
    assert writer.reply() == Failure(b"UNBLOCKED client unblocked via CLIENT UNBLOCK")
    store.node.close()


def test_the_writes_of_a_blocked_reader_count() -> None:
    store, reader, writer = opened()
    writer("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    store.flush()
    reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    writer("XADD", "s", "1-1", "a", "1")
    assert isinstance(reader.reply(), list)
    reader.send("WAITAOF", 1, 0, 0)
    assert reader.reply() is None
    store.flush()
    store.advance(0.01)
    assert reader.reply() == [1, 0]
    store.node.close()


def test_with_fsync_always_writes_are_durable_at_once() -> None:
    store = LocalStore()
    client = store.client()
    client("SET", "k", "1")
    assert client("WAITAOF", 1, 0, 0) == [1, 0]
    assert client("CONFIG", "SET", "appendfsync", "no") == Simple(b"OK")
    assert client("WAITAOF", 1, 0, 0) == [1, 0], "the change of policy has synced"
    client("SET", "k", "2")
    client.send("WAITAOF", 1, 0, 100)
    store.advance(0.1)
    assert client.reply() == [0, 0]


def test_a_full_file_is_synced() -> None:
    store = LocalStore()
    client, other = store.client(), store.client()
    client("CONFIG", "SET", "appendfsync", "no")
    client("SET", "k", "1")
    for _ in range(3):
        other("SET", "big", "x" * 500_000)
    assert client("WAITAOF", 1, 0, 0) == [1, 0]


def test_nothing_blocks_in_a_transaction() -> None:
    store, client, _ = opened()
    client("MULTI")
    client("SET", "k", "1")
    client("WAITAOF", 1, 0, 0)
    client("WAIT", 1, 0)
    assert client("EXEC") == [Simple(b"OK"), [0, 0], 0]
    store.node.close()


def test_without_a_journal_waitaof_is_an_error_and_wait_counts_no_replica() -> None:
    store = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
    client, admin = store.client(), store.client()
    assert client("WAITAOF", 1, 0, 0) == Failure(
        b"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
    )
    assert client("WAITAOF", 0, 0, 0) == [0, 0]
    assert client("WAIT", 0, 0) == 0
    client.send("WAIT", 1, 0)
    store.advance(3600)
    assert client.reply() is None
    assert admin("CLIENT", "UNBLOCK", client.session.id) == 1
    assert client.reply() == 0


def test_save_commands_write_an_image() -> None:
    # Given a store with a journal in memory, of which it writes images itself
    store = LocalStore()
    client = store.client()
    client("SET", "a", "b")
    assert client("BGREWRITEAOF") == Simple(b"Background append only file rewriting started")
    assert client("BGSAVE") == Simple(b"Background saving started")
    began = store.clock.now_ms() // 1000
    client.send("SAVE")
    store.advance(1)
    assert client.reply() == Simple(b"OK")
    # Then it has an image with everything, and says when
    assert store.node.journal is not None
    assert store.node.journal.image is not None
    assert client("LASTSAVE") == began
    store.crash()
    assert store.client()("GET", "a") == b"b"


def test_save_commands_of_a_store_without_a_journal_are_errors_with_the_alternative() -> None:
    lost = LocalStore(config=Config(port=0, appendonly=False, save=()), journaled=False)
    for command in ("SAVE", "BGSAVE", "BGREWRITEAOF"):
        reply = lost.client()(command)
        assert isinstance(reply, Failure)
        assert b"appendonly yes" in reply.text
