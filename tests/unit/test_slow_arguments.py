"""The arguments of a command that the slow log copies."""

from __future__ import annotations

import tracemalloc

from headwater.resp.arguments import Arguments
from headwater.server.services.observability.slowlog import MAX_ARGUMENTS, cut_values, first_values
from headwater.testing.node import LocalStore

LARGE = 20_000_000


def test_the_slow_log_copies_only_the_shown_part_of_a_large_argument() -> None:
    # Given a command with a value of 20 MB
    arguments = Arguments.of(b"SET", b"k", b"v" * LARGE)
    tracemalloc.start()

    # When the slow log copies the part that it shows
    shown = first_values(arguments)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # Then it has Redis's text, and nothing large was allocated
    assert shown == [b"SET", b"k", b"v" * 128 + b"... (%d more bytes)" % (LARGE - 128)]
    assert peak < 100_000


def test_arguments_beyond_the_bound_are_counted_and_not_shown() -> None:
    arguments = Arguments.of(b"DEL", *(b"%d" % number for number in range(100)))
    shown = cut_values(first_values(arguments), arguments.count)
    assert len(shown) == MAX_ARGUMENTS
    assert shown[-2:] == [b"29", b"... (70 more arguments)"]


def test_the_slow_log_hides_secrets_among_any_arguments() -> None:
    # Given a store that logs every command
    client = LocalStore(journaled=False).client()
    client("CONFIG", "SET", "slowlog-log-slower-than", 0)

    # When secrets are among the arguments, even after long ones
    client("CONFIG", "SET", "requirepass", "s3cret")
    client("ACL", "SETUSER", "bob", ">s3cret", *["~" + "k" * 200] * 40)

    # Then none of them is shown
    entries = repr(client("SLOWLOG", "GET", -1))
    assert "s3cret" not in entries
    assert "(redacted)" in entries
