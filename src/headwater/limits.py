"""The bounds of wire and store, each with its reason and its precedent."""

from __future__ import annotations

# --- the wire -----------------------------------------------------------------------------------

MAX_BULK_BYTES = 512 * 1024 * 1024
"""Longest argument. Precedent: redis.conf proto-max-bulk-len 512mb."""

MAX_QUERY_BUFFER_BYTES = 1024 * 1024 * 1024
"""Most unprocessed input of one client. Precedent: redis.conf client-query-buffer-limit 1gb."""

MAX_ARGUMENTS = 1024 * 1024
"""Most arguments of one request. Precedent: Redis, networking.c, multibulk length INT_MAX since 7;
1,048,576 before; the older bound keeps one header from asking for gigabytes of offsets."""

MAX_INLINE_BYTES = 64 * 1024
"""Longest inline request, and longest length header. Precedent: Redis PROTO_INLINE_MAX_SIZE."""

MAX_ARGUMENTS_BEFORE_AUTH = 10
MAX_BULK_BYTES_BEFORE_AUTH = 16 * 1024
"""What a client that has not authenticated may send. Precedent: Redis, CVE-2021-32675."""

MAX_INLINE_BYTES_BEFORE_AUTH = 16 * 1024
"""Longest inline request of such a client, which has 10 words at most too: a line is searched for
words and quotes byte by byte. Precedent: none, Redis bounds only what is announced by headers."""

MAX_OUTPUT_BYTES_BEFORE_AUTH = 1024
"""How many bytes of answers such a client may leave unread. Precedent: Redis, CVE-2025-21605."""

MAX_OUTPUT_AHEAD_BYTES = 1024 * 1024
"""Replies that a client has not taken, beyond which its next requests wait until it has: 46 KB of
GETs of a large value would otherwise be gigabytes at once. A ``client-output-buffer-limit`` above
it counts instead, or it could never be reached."""

MAX_INPUT_BYTES_BEFORE_AUTH = 1024 * 1024
"""What such a client may send while the reply to its refused login waits. Precedent: none, Redis delays
no login."""

MAX_LOGIN_ADDRESSES = 10_000
"""Addresses whose failed logins are counted, some 2 MB. Precedent: none, see above."""

ACL_LOG_LENGTH = 128
"""Refusals that are remembered. Precedent: redis.conf acllog-max-len."""

MAX_SCRIPT_MEMORY_BYTES = 256 * 1024 * 1024
"""What all Lua scripts together may hold; one that asks for more fails. Precedent: none, Redis's
scripts count into maxmemory."""

MAX_CLIENTS = 10_000
"""Precedent: redis.conf maxclients."""

RECEIVE_BYTES = 64 * 1024
"""One recv. Smaller buffers cost a system call a pipeline of 16 entries."""

MAX_EVENTS_PER_TURN = 128
"""Sockets served in one turn; with 1,024 a 5 ms timer was seen 33 ms late, with 128 2.5 ms."""

LOOP_HOLD_SECONDS = 0.001
"""How long turns follow one another, and how long the loop then waits for the next request, before
asyncio is asked for timers and new connections: its round costs some 10 µs, as much as thirty commands.
What is asyncio's own is that much later."""

MAX_TLS_RECORD_BYTES = 5 + 16 * 1024 + 2 * 1024
"""Precedent: RFC 5246, 6.2.3: header, plain text and what encryption may add."""

TLS_AHEAD_BYTES = 64 * 1024
"""Replies encrypted before the socket has taken what was encrypted before: about what it takes."""

HANDSHAKES_PER_TURN = 4
"""Steps of TLS handshakes between two turns: one can cost a signature, 1 ms with RSA of 2,048 bits, and
whoever is being served waits for it. Precedent: redis.conf max-new-tls-connections-per-cycle 1."""

RESTING_SECONDS = 2.0
"""After so long without a request a client's empty buffer is given back. Precedent: Redis,
clientsCronResizeQueryBuffer."""

MAX_HANDSHAKE_SECONDS = 10
"""How long a client may take until it can be understood; maxclients counts it from the start."""

MAX_ID_TEXT_BYTES = 127
"""Longest text taken for an id. Precedent: Redis, t_stream.c, a 128-byte buffer."""

MAX_ENTRY_BYTES = 1024 * 1024 * 1024
"""Most bytes of one entry's fields. Precedent: Redis STREAM_LISTPACK_MAX_SIZE (1 GiB)."""

# --- the store ----------------------------------------------------------------------------------

DATABASES = 16
"""Precedent: redis.conf databases 16."""

BLOCK_MAX_BYTES = 64 * 1024
"""Bytes of entries in a block, unless one entry takes more. A block grows as entries come, so that
100,000 small streams stay small; reading one entry of a sealed block costs its decompression, 0.1 ms."""

STREAM_HOT_BYTES = 256 * 1024 * 1024
"""How much of a store's newest entries stays as it was written, beyond which blocks are sealed: the
last million of 250 bytes, more than consumers that keep up ever read. Precedent: none."""

SEALED_LEAST_BYTES = 4 * 1024
"""Smaller blocks are never sealed: the objects of a sealed one take half a KiB themselves."""

SEALED_MOST_BYTES = 1024 * 1024
"""Nor are larger ones (of one entry): whoever reads that would hold everyone up for milliseconds."""

SEALING_LAG_BYTES = 192 * 1024 * 1024
"""How far sealing may lag behind the budget before turns help with it: a burst of some 800,000 entries
of 250 bytes costs those who send it nothing."""

OPENED_BLOCKS = 64
"""Sealed blocks that stay open for reading, the latest, 4 MiB: whoever reads on in small steps, and
others behind it, open each block once."""

MAX_ENTRIES_COUNT = 2**63 - 1
"""Where ``entries_added`` and ``entries_read`` stay once XSETID has brought them there: the greatest
integer that RESP and the facts hold. Precedent: none, Redis wraps to a negative number."""

PENDING_BLOCK_RECORDS = 256
"""Records of 32 bytes in a block of the pending entries list: one block is 8 KiB."""

IDMP_DURATION_S = 100
IDMP_MAXSIZE = 100
"""What a stream knows of its idempotent producers until it is told otherwise: how long, and how many
iids of each. Precedent: redis.conf stream-idmp-duration and stream-idmp-maxsize. The fact that a
stream was created means these values; they never change."""

MAX_IDMP_DURATION_S = 86_400
MAX_IDMP_MAXSIZE = 10_000
"""Precedent: the bounds of XCFGSET."""

IID_SWEEP_MS = 1000
"""How often iids that have run out are forgotten. Precedent: Redis, handleExpiredIdmpEntries."""

MAX_IIDS_A_SWEEP = 1000
"""Most iids (and one producer's more) that one sweep forgets, some 15 ms in plain Python when each has
a producer of its own; the next one follows at once, after whatever clients have sent meanwhile."""

MAX_DELIVERY_COUNT = 2**63 - 1
"""Precedent: Redis, LLONG_MAX, which XNACK FATAL sets."""

JOURNAL_FILE_BYTES = 64 * 1024 * 1024
"""Preallocated size of one journal file; the next one is kept ready as the reserve."""

MAX_RECORD_GROUP_BYTES = 2 * 1024 * 1024 * 1024
"""Longest record group that is believed when read back; checked before anything is allocated."""

MAX_RESTORED_BYTES = 1024 * 1024 * 1024
"""Most bytes that RESTORE makes of one payload, of which compressed strings and field names that are
written once make many. Half of `MAX_RECORD_GROUP_BYTES`, because it becomes one record group."""

LARGE_VALUE_PARTS = 1000
LARGE_VALUE_BYTES = 256 * 1024
LARGE_PAYLOAD_BYTES = 16 * 1024
"""Values of so many entries, members or bytes, and payloads of so many bytes, which may be compressed,
are dumped and restored off the loop: what is smaller takes a millisecond or two at most."""

REFUSED_RECHECK_MS = 1000
"""How long a blocked client that could be served waits on while the journal has no room for it."""

SHORTEST_RECHECK_MS = 10
"""How often at most a blocked XREADGROUP CLAIM looks for entries that were delivered meanwhile; CLAIM 0
would otherwise look all the time."""

MAX_ERROR_CODES = 128
"""First words of error replies that INFO errorstats tells apart; a script could make as many as it
likes. Precedent: Redis, ERROR_STATS_NUMBER."""

SMALL_GARBAGE = 256
"""Parts (entries, members) up to which a dropped value is freed where it is dropped: 20 µs."""

MAX_KEYS_EXPIRED_AT_ONCE = 500
"""Keys that are deleted in one go because their time has come; the rest stays invisible and goes
between the next commands. Precedent: Redis, activeExpireCycle, which has a share of the time."""

LIMITED_LOG_LINES, LIMITED_LOG_SECONDS = 10, 60
"""How often a log line that clients or a slow disk can cause is written: so many lines of one kind in so
many seconds, 1.5 MB a day at most. Further ones are counted and reported in one line."""

MAX_LOG_MESSAGE = 4096
"""Characters of a log message; the rest is cut, and the line says how much. A script can log any text.
Precedent: Redis, LOG_MAX_LEN, 1,024 bytes."""
