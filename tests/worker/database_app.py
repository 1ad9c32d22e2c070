"""An app whose handler depends on a database: the file at ``DATABASE_FILE``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from headwater.worker import App, Stream, Use
from tests.worker.shop import Order

app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="database", grace="5s")
orders: Stream[Order] = Stream("orders", Order)


def open_db() -> Iterator[Path]:
    there = Path(os.environ["DATABASE_FILE"])
    there.stat()
    yield there
    sys.stderr.write("closed the database\n")


@app.consumer(orders, group="g")
async def bill(order: Order, db: Annotated[Path, Use(open_db)]) -> None:
    db.stat()
