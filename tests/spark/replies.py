"""Replies to XRANGE as a server writes them, decoded without a server."""

from __future__ import annotations

import pickle
from typing import Any

from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.reply import PageDecoder
from headwater.spark.decoding.rows import RowBuilder

Fields = dict[bytes, bytes]


def reply_of(*entries: tuple[bytes, list[bytes]]) -> bytes:
    """Return a server's reply to XRANGE."""

    def bulk(value: bytes) -> bytes:
        return b"$%d\r\n%b\r\n" % (len(value), value)

    out = b"*%d\r\n" % len(entries)
    for id_, body in entries:
        out += b"*2\r\n" + bulk(id_) + b"*%d\r\n" % len(body) + b"".join(map(bulk, body))
    return out


def page_of(*bodies: Fields | list[bytes]) -> Page:
    """Return a page decoded from a reply, with ids 1-0, 2-0, …"""
    flat = [
        body if isinstance(body, list) else [part for pair in body.items() for part in pair]
        for body in bodies
    ]
    page = PageDecoder().feed(
        reply_of(*((b"%d-0" % place, body) for place, body in enumerate(flat, 1)))
    )
    assert page is not None
    return page


def rows_of(schema: str, *bodies: Fields | list[bytes], **options: str) -> list[dict[str, Any]]:
    given = {"url": "redis://localhost", "stream": "s"} | options
    shape = RowShape.of(parse_schema(schema), parse_options(given))
    builder = RowBuilder(pickle.loads(pickle.dumps(shape)), "s")
    batch = builder.build(page_of(*bodies))
    assert batch.schema == builder.schema
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows
