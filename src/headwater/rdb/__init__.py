"""The bytes of DUMP and RESTORE: values in Redis's RDB format, to neutral images and back.

Rule 1. This room knows no engine: `image.py` is what it gives and takes.
Rule 2. What is read is hostile. Every length is checked against what is left before anything is made
        of it; what the bytes say twice (counts, ids, owners) must agree. Whatever is wrong is
        `BadPayload`, and nothing else is ever raised.
Rule 3. What is written is the plainest form that every server from the one it is named for on reads.

    payload = type u8 │ value │ version u16 │ crc64 u64        little-endian           payload.py
              crc64, and LZF in strings                                                 codes.py
    value   = lengths, strings, ids                                                   lengths.py
              a stream: nodes and groups                                              streams.py
              a node: a listpack of entries                            stream_nodes.py, listpack.py
              a group: consumers and pending entries                  stream_groups.py, pending.py

Sources: Redis, rdb.c, listpack.c, intset.c, lzf_d.c, cluster.c (DUMP, RESTORE).
"""
