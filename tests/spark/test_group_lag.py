"""The lag of a group that has read more entries than the stream counts since XSETID is unknown, not negative."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.spark.core.options import parse_options
from headwater.spark.core.store import SourceStore
from headwater.spark.group_mode.membership import Membership
from headwater.spark.pipeline.declaration.model import Source
from headwater.spark.pipeline.lag import lags_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def test_a_negative_lag_is_unknown(shop: Shop, store: SourceStore) -> None:
    # Given a group that has read four entries of a stream that says it has got two
    shop.add("s", range(1, 6))
    shop.client.xgroup_create("s", "tables", "0")
    shop.client.xreadgroup("tables", "c", {"s": ">"}, count=4)
    shop.client.xtrim("s", maxlen=2, approximate=False)
    shop.client.execute_command("XSETID", "s", "9-1", "ENTRIESADDED", 2)
    groups: Any = shop.client.xinfo_groups("s")
    unread = groups[0]["lag"] if shop.name == "headwater" else None
    assert unread is not None or groups[0]["lag"] < 0

    # Then a pipeline and a query report the lag that is known, or none
    options = {"url": shop.url, "stream": "s", "group": "tables"}
    (lag,) = lags_of(Source("events", options, None), None)
    assert lag.entries == (None if unread is None else unread + 4)
    found = Membership(parse_options(options), store).lags(["s"])
    assert found["s"] == {"delivered": "4-1", "lag": unread, "pending": 4}
