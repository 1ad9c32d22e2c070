"""`headwater.connect` for asyncio: ``await headwater.aio.connect("redis://localhost:6379").xlen("orders")``."""

from __future__ import annotations

from headwater.client.aio.connect import connect

__all__ = ["connect"]
