"""Metrics, alerts and the board fit each other, by Prometheus's own tool; redis_exporter works with Headwater."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry, generate_latest

from headwater.cli.exporter import StoreCollector
from headwater.cli.query import query
from tests import peers
from tests.waiting import eventually
from tests.worker.core import Core
from tools import boards

pytestmark = pytest.mark.slow

NOT_OURS = re.compile(
    "redis_(allocator|defrag|migrate|module|tracking|slave_expires|io_threaded|latency_percentiles|dump_payload|"
    "mem_clients_slaves|mem_fragmentation|mem_not_counted|cpu_.*_main_thread|expired_(stale|time_cap)|.*_cow_size|"
    "db0_distrib).*"
)
"""Metrics of what Headwater does not have: Redis's allocator and its defragmentation, replicas, modules, client-side
caching, threads, and percentiles of latencies in INFO."""


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return peers.tool("promtool")
    except peers.PeerMissing as missing:
        if peers.required():
            raise
        pytest.skip(str(missing))


def check(promtool: Path, *words: str, text: str = "") -> None:
    done = subprocess.run(
        [promtool, *words], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_a_scrape(core: Core, url: str, promtool: Path) -> None:
    # Given a store with a stream, a group, a pending and an unread entry
    core.client.xadd("s", {"n": 1})
    core.read()
    core.client.xadd("s", {"n": 2})
    # When it is scraped
    registry = CollectorRegistry()
    registry.register(StoreCollector(lambda operation: query(url, operation)))
    text = generate_latest(registry).decode()
    # Then promtool has nothing to say against names, types and texts
    assert "headwater_group_lag_seconds{" in text
    check(promtool, "check", "metrics", text=text)


def test_the_alerts_are_valid_and_fire(promtool: Path, tmp_path: Path) -> None:
    check(promtool, "check", "rules", str(boards.ALERTS))
    # Given a group that is two minutes behind for ten minutes, a store that is away, and new dead letters
    series = [
        ('headwater_group_lag_seconds{stream="s",group="g"}', "120x10"),
        ('redis_up{instance="i"}', "0x10"),
        ('headwater_dead_letters{stream="s"}', "0 0 0 1x7"),
        ('redis_memory_used_bytes{instance="i"}', "95x10"),
        ('redis_memory_max_bytes{instance="i"}', "100x10"),
        ('redis_aof_last_write_status{instance="i"}', "0x10"),
        ('headwater_cold_read_failures_total{instance="i"}', "0 1x9"),
        ('redis_connected_slaves{instance="i"}', "2 1x10"),
        ('redis_connected_slave_lag_seconds{instance="i",slave_ip="j",slave_port="1"}', "60x10"),
        ('redis_master_link_up{instance="j",master_host="i"}', "0x10"),
        ('headwater_group_oldest_pending_seconds{stream="s",group="g"}', "4000x20"),
        ('headwater_group_delayed{stream="s",group="g"}', "0x20"),
    ]
    fired = {one.name for one in boards.RULES}
    tests = {
        "rule_files": [str(boards.ALERTS)],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": "10m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                    for name in sorted(fired)
                ],
            }
        ],
    }
    # Then each alert fires
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps(tests))
    check(promtool, "test", "rules", str(path))


def test_the_board_and_the_alerts_use_metrics_that_exist() -> None:
    written = [one.expression for one in (*boards.PANELS, *boards.RULES)]
    used = set(re.findall(r"\b(?:redis|headwater)_\w+", " ".join(written)))
    assert used - boards.NAMES == set()


def test_redis_exporter_gives_the_same_for_headwater(headwater_url: str, peer: object) -> None:
    # Given Redis and Headwater with the same content
    try:
        exporter = peers.tool("redis-exporter")
    except peers.PeerMissing as missing:
        if peers.required():
            raise
        pytest.skip(str(missing))
    assert callable(peer)
    found = []
    for url in (peer("redis-8.2").url, headwater_url):
        with redis.Redis.from_url(url) as client:
            client.flushall()
            client.xadd("s", {"n": 1})
            client.xgroup_create("s", "g", "0")
            client.xreadgroup("g", "c", {"s": ">"})
            client.set("k", "v")
        # When redis_exporter is asked about both
        found.append(_names(exporter, url))
    of_redis, of_headwater = found
    # Then it gives every metric that both have
    lacking = {name for name in of_redis - of_headwater if not NOT_OURS.fullmatch(name)}
    assert lacking == set()
    assert {"redis_stream_length", "redis_stream_group_messages_pending"} <= of_headwater


def _names(exporter: Path, url: str) -> set[str]:
    port = peers.free_port()
    words = ["--redis.addr", url, "--web.listen-address", f"127.0.0.1:{port}"]
    with subprocess.Popen(
        [exporter, *words, "--check-streams", "db0=*"], stderr=subprocess.DEVNULL
    ) as process:
        try:
            text = eventually(lambda: _scraped(port), "redis_exporter answers")
        finally:
            process.kill()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {re.split(r"[{ ]", line)[0] for line in lines}


def _scraped(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
            text: str = reply.read().decode()
            return text
    except OSError:
        time.sleep(0.05)
        return ""
