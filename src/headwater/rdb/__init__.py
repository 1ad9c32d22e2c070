"""The payloads of DUMP and RESTORE: converts between values in Redis's RDB format and neutral images.

Rule 1. This package does not import the engine: its input and output are the types of `image.py`.
Rule 2. Payloads are untrusted. Every length is checked against the remaining bytes before memory is
        allocated, and redundant data (counts, ids, owners) must agree. Every fault raises `BadPayload`
        or `BadEnvelope`, and no other exception is ever raised.
Rule 3. Values are written in the simplest form that all servers from the requested version on can read.

    payload = type u8 │ value │ version u16 │ crc64 u64        little-endian           payload.py
              crc64, and LZF in strings                                                 codes.py
    value   = lengths, strings, ids                                                   lengths.py
              a stream: nodes and groups                                              streams.py
              a node: a listpack of entries                            stream_nodes.py, listpack.py
              a group: consumers and pending entries                  stream_groups.py, pending.py

Sources: Redis, rdb.c, listpack.c, intset.c, lzf_d.c, cluster.c (DUMP, RESTORE).
"""
