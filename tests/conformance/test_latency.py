"""LATENCY: slow events and the durations of commands, both recorded only while they are enabled."""

from __future__ import annotations

import re

import pytest

from headwater.config.config import Config
from headwater.server.services.observability.latency import MAX_SAMPLES, EventSeries, Histogram
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Simple

OK = Simple(b"OK")


@pytest.fixture
def client() -> LocalClient:
    config = Config(port=0, appendonly=False, save=(), enable_debug_command="yes")
    return LocalStore(config=config, journaled=False).client()


def test_slow_events_are_recorded_once_the_monitor_is_enabled(client: LocalClient) -> None:
    # Given a monitor that is off, and so records nothing
    client("DEBUG", "SLEEP", "0.002")
    assert client("LATENCY", "LATEST") == []

    # When it is enabled
    client("CONFIG", "SET", "latency-monitor-threshold", 1)
    client("DEBUG", "SLEEP", "0.005")

    # Then every subcommand shows the event
    latest = client("LATENCY", "LATEST")
    assert isinstance(latest, list)
    (event,) = latest
    assert isinstance(event, list)
    name, time, ms, longest = event
    assert name == b"command"
    assert isinstance(ms, int)
    assert ms >= 5
    assert longest == ms
    assert client("LATENCY", "HISTORY", "command") == [[time, ms]]
    graph = client("LATENCY", "GRAPH", "command")
    assert isinstance(graph, bytes)
    head = b"command - high %d ms, low %d ms (all time high %d ms)\n"
    assert graph.startswith(head % (ms, ms, ms) + b"-" * 80)
    doctor = client("LATENCY", "DOCTOR")
    assert isinstance(doctor, bytes)
    assert b"1. command: 1 within 1 s" in doctor
    assert client("LATENCY", "RESET", "none", "command", "command") == 1
    assert client("LATENCY", "LATEST") == []


def test_an_event_retains_the_longest_sample_of_each_of_the_last_seconds() -> None:
    # Given three samples in each of more seconds than are retained
    series = EventSeries()
    for second in range(2 * MAX_SAMPLES):
        series.add(second, 10)
        series.add(second, 30)
        series.add(second, 20)

    # Then only the last seconds remain, each with its longest sample
    assert list(series.samples) == [(second, 30) for second in range(MAX_SAMPLES, 2 * MAX_SAMPLES)]
    assert series.max_ms == 30


def test_durations_of_commands_are_shown_while_tracking_is_on(client: LocalClient) -> None:
    # Given tracking that is off, and so records nothing
    client("PING")
    assert client("LATENCY", "HISTOGRAM") == []
    assert client("INFO", "latencystats") == b"# Latencystats\r\n"

    # When it is enabled
    client("CONFIG", "SET", "latency-tracking", "yes")
    for _ in range(3):
        client("PING")
    client("CONFIG", "GET", "save")

    # Then LATENCY HISTOGRAM and INFO show the commands that ran
    histogram = client("LATENCY", "HISTOGRAM", "ping", "nosuch")
    assert isinstance(histogram, list)
    name, details = histogram
    assert name == b"ping"
    assert isinstance(details, list)
    assert details[:3] == [b"calls", 3, b"histogram_usec"]
    assert isinstance(details[3], list)
    assert details[3][-1] == 3, "the last bucket counts all calls"
    config = client("LATENCY", "HISTOGRAM", "config")
    assert isinstance(config, list)
    assert set(config[::2]) == {b"config|set", b"config|get"}
    stats = client("INFO", "latencystats")
    assert isinstance(stats, bytes)
    line = rb"latency_percentiles_usec_ping:p50=\d+\.\d{3},p99=\d+\.\d{3},p99\.9=\d+\.\d{3}\r\n"
    assert re.search(line, stats)

    # And RESETSTAT clears them with the other statistics
    client("CONFIG", "RESETSTAT")
    client("CONFIG", "SET", "latency-tracking-info-percentiles", "100")
    stats = client("INFO", "latencystats")
    assert isinstance(stats, bytes)
    assert b"usec_ping" not in stats
    assert re.search(rb"usec_config\|resetstat:p100=\d+\.\d{3}\r\n", stats)


def test_percentiles_are_at_most_four_percent_too_high() -> None:
    histogram = Histogram()
    for microseconds in range(1, 10_001):
        histogram.add(microseconds * 1000)
    for percent in (1.0, 50.0, 99.0, 99.9, 100.0):
        exact = 10_000 * percent / 100
        assert exact <= histogram.percentile_us(percent) <= 1.04 * exact
    assert histogram.powers_of_two()[-1] == (16384, 10_000)
    edges = dict(histogram.powers_of_two())
    for edge in (64, 1024, 8192):
        assert abs(edges[edge] - edge) <= 0.04 * edge
