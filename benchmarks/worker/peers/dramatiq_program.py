"""dramatiq, whose workers are threads: ``URL MESSAGES``."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.worker.tally import Tally, body

URL, MESSAGES = sys.argv[1], int(sys.argv[2])

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)
tally = Tally(MESSAGES)
lock, done = threading.Lock(), threading.Event()


@dramatiq.actor
def handle(message: dict[str, Any]) -> None:
    with lock:
        if tally.add():
            done.set()


for number in range(MESSAGES):
    handle.send(json.loads(body(number)))
worker = dramatiq.Worker(broker, worker_threads=8)
worker.start()
done.wait()
tally.report()
worker.stop()
