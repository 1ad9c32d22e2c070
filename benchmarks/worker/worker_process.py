"""A worker process that runs until it is killed: ``python -m benchmarks.worker.worker_process URL count|hang``.

``count``: its handlers return at once. ``hang``: they never return.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.worker.ours import Order, orders
from benchmarks.worker.tally import GROUP
from headwater.worker import App


def main() -> None:
    """Run the worker."""
    url, kind = sys.argv[1:]
    app = App(url, name="bench")
    hangs = kind == "hang"

    @app.consumer(orders, group=GROUP, claim_after="1s", concurrency=16, prefetch=1_000)
    async def handle(order: Order) -> None:
        if hangs:
            await asyncio.Event().wait()

    asyncio.run(app.run())


if __name__ == "__main__":
    main()
