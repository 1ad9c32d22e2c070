"""An app that configures logging with the defaults of `logging.config.dictConfig`, when the module is imported or, with
``LOGGING_AT=start``, when the worker starts. The message 1 fails."""

from __future__ import annotations

import logging.config
import os
from typing import Any

import msgspec

from headwater.worker import App, Stream

CONFIGURATION: dict[str, Any] = {
    "version": 1,
    "formatters": {"own": {"format": "OWN %(levelname)s %(name)s %(message)s"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"level": "INFO", "handlers": ["own"]},
}
if level := os.environ.get("LOGGING_LEVEL"):
    CONFIGURATION["loggers"] = {"headwater": {"level": level}}


class Order(msgspec.Struct):
    id: int


app = App(os.environ.get("SHOP_URL", "redis://localhost:1"), name="logging", grace="2s")
orders: Stream[Order] = Stream("orders", Order)


def configure() -> None:
    logging.config.dictConfig(CONFIGURATION)


if os.environ.get("LOGGING_AT") == "start":
    app.on_start(configure)
else:
    configure()


@app.consumer(orders, group="g", retry=None)
async def bill(order: Order) -> None:
    if order.id == 1:
        raise ValueError("as requested")
