"""Celery with a pool of threads in one process: ``URL MESSAGES``."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from celery import Celery

from benchmarks.worker.tally import Tally, body

URL, MESSAGES = sys.argv[1], int(sys.argv[2])

app = Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
)
tally = Tally(MESSAGES)
lock = threading.Lock()


@app.task
def handle(message: dict[str, Any]) -> None:
    with lock:
        last = tally.add()
    if last:
        tally.report()
        os._exit(0)  # its shutdown takes seconds


for number in range(MESSAGES):
    handle.delay(json.loads(body(number)))
app.worker_main(
    ["worker", "--pool=threads", "--concurrency=8", "--loglevel=ERROR", "--without-gossip",
     "--without-mingle", "--without-heartbeat"]
)  # fmt: skip
