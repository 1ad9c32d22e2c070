"""The limits of the protocol and the store, each with its reason and its precedent."""

from __future__ import annotations

# --- protocol -----------------------------------------------------------------------------------

MAX_BULK_BYTES = 512 * 1024 * 1024
"""Maximum length of an argument. Precedent: redis.conf proto-max-bulk-len 512mb."""

MAX_QUERY_BUFFER_BYTES = 1024 * 1024 * 1024
"""Maximum unprocessed input of one client. Precedent: redis.conf client-query-buffer-limit 1gb."""

MAX_ARGUMENTS = 1024 * 1024
"""Maximum number of arguments of one request. Precedent: Redis, networking.c, multibulk length: INT_MAX
since 7, 1,048,576 before. The older limit prevents a single header from allocating gigabytes of offsets."""

MAX_INLINE_BYTES = 64 * 1024
"""Maximum length of an inline request and of a length header. Precedent: Redis PROTO_INLINE_MAX_SIZE."""

MAX_ARGUMENTS_BEFORE_AUTH = 10
MAX_BULK_BYTES_BEFORE_AUTH = 16 * 1024
"""Maximum number of arguments of a request, and of bytes in each, before the client has authenticated.
Precedent: Redis, CVE-2021-32675."""

MAX_INLINE_BYTES_BEFORE_AUTH = 16 * 1024
"""Maximum length of an inline request before authentication. Such a request may have at most 10 words, because a
line is searched for words and quotes byte by byte. Precedent: none; Redis limits only lengths in headers."""

MAX_OUTPUT_BYTES_BEFORE_AUTH = 1024
"""Maximum number of bytes of replies left unread before authentication. Precedent: Redis, CVE-2025-21605."""

MAX_OUTPUT_AHEAD_BYTES = 1024 * 1024
"""Number of bytes of unread replies above which a client's next requests wait until it has read them. Without
the limit, 46 KB of GETs of a large value would create gigabytes of replies in one go. If
``client-output-buffer-limit`` is higher, it applies instead, because it could otherwise never be reached."""

REPLY_PIECE_BYTES = 1024 * 1024
"""Size of the pieces in which the entries of a longer reply are written, as the client reads them. Precedent:
none; Redis writes every reply whole into memory."""

MAX_INPUT_BYTES_BEFORE_AUTH = 1024 * 1024
"""Maximum number of bytes that an unauthenticated client may send while the reply to its failed login is delayed.
Precedent: none; Redis does not delay logins."""

MAX_LOGIN_ADDRESSES = 10_000
"""Maximum number of addresses with counted failed logins, about 2 MB. Precedent: none; Redis does not delay logins."""

ACL_LOG_LENGTH = 128
"""Maximum number of entries of ACL LOG. Precedent: redis.conf acllog-max-len."""

MAX_SETTING_BYTES = 64 * 1024
"""Maximum length of a value of CONFIG SET, so that all settings together stay small. Precedent: none; Redis counts
them towards maxmemory."""

MAX_SCRIPT_MEMORY_BYTES = 256 * 1024 * 1024
"""Maximum memory of all Lua scripts together. A script that needs more fails. Precedent: none; the memory
of Redis's scripts counts towards maxmemory."""

MAX_SCRIPT_CALL_BYTES = 16 * 1024 * 1024
MAX_SCRIPT_TEXT_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes that one call of a string function or of cjson.encode may handle, and maximum length of
a text that is compiled or passed to cjson.decode. No clock is checked within such a call, which takes at most 0.2
s (gsub with a match at each byte, cjson.decode). A script can handle a longer text in parts. Precedent: none; in
Redis a call of any length blocks all clients."""

MAX_CLIENTS = 10_000
"""Maximum number of connected clients. Precedent: redis.conf maxclients."""

RECEIVE_BYTES = 64 * 1024
"""Buffer size of one recv. With smaller buffers, a pipeline of 16 entries needs an extra system call."""

MAX_EVENTS_PER_TURN = 128
"""Maximum number of sockets served in one turn. With 1,024, a 5 ms timer was 33 ms late; with 128, 2.5 ms."""

LOOP_HOLD_SECONDS = 0.001
"""Maximum time for which turns follow one another, and for which the loop then waits for the next request,
before asyncio runs its timers and accepts new connections. One round of asyncio takes about 10 µs, as long as
thirty commands. asyncio's own work is delayed by up to this time."""

MAX_TLS_RECORD_BYTES = 5 + 16 * 1024 + 2 * 1024
"""Maximum size of a TLS record: header, plain text and encryption overhead. Precedent: RFC 5246, 6.2.3."""

TLS_AHEAD_BYTES = 64 * 1024
"""Maximum number of bytes of replies that are encrypted but not yet accepted by the socket: about the number that
a socket accepts in one call."""

HANDSHAKES_PER_TURN = 4
"""Maximum number of TLS handshake steps between two turns. One step can include a signature, 1 ms with RSA of
2,048 bits, and all other clients wait for it. Precedent: redis.conf max-new-tls-connections-per-cycle 1."""

RESTING_SECONDS = 2.0
"""Time without a request after which the empty buffer of a client is freed, in seconds. Precedent: Redis,
clientsCronResizeQueryBuffer."""

MAX_HANDSHAKE_SECONDS = 10
"""Maximum duration of a TLS handshake, in seconds. maxclients counts the client from the start."""

MAX_ID_TEXT_BYTES = 127
"""Maximum length of an id's text. Precedent: Redis, t_stream.c, a 128-byte buffer."""

MAX_ENTRY_BYTES = 1024 * 1024 * 1024
"""Maximum size of one entry's fields. Precedent: Redis STREAM_LISTPACK_MAX_SIZE (1 GiB)."""

# --- store --------------------------------------------------------------------------------------

DATABASES = 16
"""Number of databases. Precedent: redis.conf databases 16."""

BLOCK_MAX_BYTES = 64 * 1024
"""Maximum size of a block of entries, unless a single entry is larger. A block grows with its entries, so
that 100,000 small streams stay small. Reading an entry of a sealed block decompresses a third, 0.05 ms at most."""

STREAM_HOT_BYTES = 256 * 1024 * 1024
"""Number of bytes of a store's newest entries that stay uncompressed; blocks of older entries are sealed. This
is the last million entries of 250 bytes, more than consumers that keep up ever read. Precedent: none."""

SEALED_LEAST_BYTES = 4 * 1024
"""Minimum size of a block that is sealed: the objects of a sealed block take half a KiB themselves."""

SEALED_MOST_BYTES = 1024 * 1024
"""Maximum size of a block that is sealed in a store without segments: decompressing a larger one (of one entry)
would delay all clients for milliseconds."""

PART_LEAST_BYTES = 16 * 1024
"""Minimum size of a part of a sealed block. A block of at least twice this size is compressed as two parts, of at
least three times as three, so that reading a few entries decompresses one or two parts."""

SEALING_LAG_BYTES = 192 * 1024 * 1024
"""Number of bytes by which sealing may lag behind the budget before turns help with it. Up to this lag, a burst of
about 800,000 entries of 250 bytes does not delay its senders."""

COLD_CACHE_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of sealed blocks that stay decompressed after they were read more than once; the blocks
read last stay. If several clients read the same blocks one after the other, each block is opened only once."""

READ_ONCE_BYTES = 1024 * 1024
"""Maximum number of bytes of sealed blocks that stay decompressed after they were read once. A client that reads
in small steps decompresses each block once. One that reads a whole stream does not close blocks read by others."""

MAX_ENTRIES_COUNT = 2**63 - 1
"""Maximum of ``entries_added`` and ``entries_read``: a counter that XSETID has set to it no longer grows. It is
the greatest integer that RESP and facts can represent. Precedent: none; Redis wraps to a negative number."""

MAX_COUNT = 2**40
"""Maximum of a count in a request. A larger count means the same, because no store has that many entries.
`Arguments.count_at` and XREAD's options enforce the maximum, so that sums of a count, and its product with
`MAX_ARGUMENTS`, fit into 64 bits."""

MAX_DURATION_MS = 2**62
"""Maximum of a delay, and of a min-idle-time for which a client waits, in milliseconds. The time at which
it ends has to fit into a signed 64-bit integer."""

PENDING_BLOCK_RECORDS = 256
"""Number of records, of 32 bytes each, in a block of the pending entries list: one block is 8 KiB."""

IDMP_DURATION_S = 100
IDMP_MAXSIZE = 100
"""Defaults for a stream's idempotent producers: the time for which iids are stored, in seconds, and their number
per producer. Precedent: redis.conf stream-idmp-duration and stream-idmp-maxsize. The fact that creates a stream
implies these values, so they must never change."""

MAX_IDMP_DURATION_S = 86_400
MAX_IDMP_MAXSIZE = 10_000
"""Maximum values of these two settings of a stream. Precedent: XCFGSET."""

IID_SWEEP_MS = 1000
"""Interval at which expired iids are deleted, in milliseconds. Precedent: Redis, handleExpiredIdmpEntries."""

MAX_IIDS_A_SWEEP = 1000
"""Maximum number of iids (plus those of one producer) that one sweep deletes, in about 15 ms in plain Python if
each iid has a different producer. The next sweep follows immediately after the requests received meanwhile."""

MAX_DELIVERY_COUNT = 2**63 - 1
"""Maximum delivery count. Precedent: Redis, LLONG_MAX, which XNACK FATAL sets."""

JOURNAL_FILE_BYTES = 64 * 1024 * 1024
"""Maximum preallocated size of a journal file. The next file is preallocated in advance, as the reserve."""

MAX_RECORD_GROUP_BYTES = 2 * 1024 * 1024 * 1024
"""Maximum length of a record group that recovery accepts. The length is checked before memory is allocated."""

SEGMENT_BYTES = 64 * 1024 * 1024
"""Maximum size of a segment, unless a single blob is larger. A segment is deleted whole."""

MAX_BLOB_IDS_BYTES = 16 * 1024 * 1024
"""Maximum size of the ids in a blob: a block of 1 MiB has up to 35,000 entries, and an id takes up to 30 bytes.
The size is checked before memory is allocated."""

MAX_RESTORED_BYTES = 1024 * 1024 * 1024
"""Maximum number of bytes that RESTORE may create from one payload. Compressed strings expand, and so do field
names that the payload contains only once. The limit is half of `MAX_RECORD_GROUP_BYTES`, because the result
becomes one record group."""

LARGE_VALUE_PARTS = 1000
LARGE_VALUE_BYTES = 256 * 1024
LARGE_PAYLOAD_BYTES = 16 * 1024
"""Size from which values (in entries, members or bytes) and payloads (in bytes, possibly compressed) are dumped
and restored in a thread. Smaller ones take at most a millisecond or two."""

MAX_NUMBER = 2**32 - 2
"""Greatest number of a stream, a group, or a consumer of a group. Numbers are not used again, and have 32 bits in facts."""

REFUSED_RECHECK_MS = 1000
"""Time before the next attempt to serve a blocked client for which the journal had no space, in
milliseconds."""

SHORTEST_RECHECK_MS = 10
"""Minimum interval at which a blocked XREADGROUP CLAIM looks for entries that have been delivered meanwhile, in
milliseconds. Without this minimum, CLAIM 0 would look continuously."""

MAX_ERROR_CODE_BYTES = 30
"""Maximum length of an error code in INFO errorstats. An error with a longer first word counts as ERR. Precedent:
Redis, networking.c, afterErrorReply."""

MAX_ERROR_CODES = 128
"""Maximum number of error codes that INFO errorstats distinguishes, because a script could create any number.
Precedent: Redis, ERROR_STATS_NUMBER."""

GROWN_TEXTS = 1024
"""Maximum number of short strings that are remembered as made by APPEND or SETRANGE, for OBJECT ENCODING."""

SMALL_GARBAGE = 256
"""Maximum number of parts (entries, members) of a deleted value that is freed immediately, in about 20 µs."""

MAX_KEYS_EXPIRED_AT_ONCE = 500
"""Maximum number of expired keys that are deleted in one go. The others are invisible and are deleted between the
next commands. Precedent: Redis, activeExpireCycle, which limits its share of the time."""

LIMITED_LOG_LINES, LIMITED_LOG_SECONDS = 10, 60
"""Maximum number of log lines of one template that clients or a slow disk can cause, and the period in seconds.
Lines of 100 bytes are at most 1.5 MB a day. Further lines are counted, and the count is reported in one line."""

MAX_LOG_MESSAGE = 4096
"""Maximum number of characters of a log message. The rest is cut, and the line shows the length of the message. A
script can log any text. Precedent: Redis, LOG_MAX_LEN, 1,024 bytes."""
