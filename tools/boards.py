"""Writes ``deploy/``: a Grafana board and alert rules, from the table of metrics (`headwater.operations.metrics`).

``python -m tools.boards`` writes the files; tests/tidy checks that they are up to date, and tests/operations that
promtool accepts them and that the alerts fire.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from headwater.operations.metrics import TABLE

ROOT = Path(__file__).resolve().parent.parent / "deploy"
BOARD = ROOT / "grafana" / "headwater.json"
ALERTS = ROOT / "prometheus" / "alerts.yml"

NAMES = frozenset(one.name for one in TABLE)


class Panel(NamedTuple):
    """One chart: its title, what it shows, the legend of a line and the unit."""

    title: str
    expression: str
    legend: str = "{{stream}} {{group}}"
    unit: str = "short"


PANELS = (
    Panel("Lag of groups", "headwater_group_lag_seconds", unit="s"),
    Panel("Unread entries", "headwater_group_unread"),
    Panel("Pending entries", "redis_stream_group_messages_pending"),
    Panel("Oldest pending entry", "headwater_group_oldest_pending_seconds", unit="s"),
    Panel("Delayed entries", "headwater_group_delayed"),
    Panel("Dead letters", "headwater_dead_letters", "{{stream}}"),
    Panel("Entries of streams", "redis_stream_length", "{{stream}}"),
    Panel("Commands a second", "rate(redis_commands_processed_total[1m])", "{{instance}}", "ops"),
    Panel("Memory", "redis_memory_used_bytes", "{{instance}}", "bytes"),
    Panel("Connected clients", "redis_connected_clients", "{{instance}}"),
    Panel(
        "Bytes that replicas lack",
        "headwater_replica_behind_bytes",
        "{{instance}} {{slave_ip}}:{{slave_port}}",
        "bytes",
    ),
    Panel("Links to primaries", "redis_master_link_up", "{{instance}} {{master_host}}"),
    Panel("Journal", "redis_aof_current_size_bytes", "{{instance}}", "bytes"),
    Panel("Entries on disk", "headwater_segment_live_bytes", "{{instance}}", "bytes"),
)


class Alert(NamedTuple):
    """One alert rule."""

    name: str
    expression: str
    duration: str
    severity: str
    summary: str


_GROUP = "group {{ $labels.group }} of {{ $labels.stream }}"
_EXPLAIN = "headwater explain {{ $labels.stream }} {{ $labels.group }}"

RULES = (
    Alert(
        "StoreDown",
        "redis_up == 0",
        "1m",
        "critical",
        "The store {{ $labels.instance }} does not answer.",
    ),
    Alert(
        "GroupLags",
        "headwater_group_lag_seconds > 60",
        "5m",
        "warning",
        f"{_GROUP} is {{{{ $value | humanizeDuration }}}} behind: {_EXPLAIN}",
    ),
    Alert(
        "EntriesStuck",
        "headwater_group_oldest_pending_seconds > 3600 and headwater_group_delayed == 0",
        "10m",
        "warning",
        f"{_GROUP} has had an entry pending for {{{{ $value | humanizeDuration }}}}: {_EXPLAIN}",
    ),
    Alert(
        "DeadLetters",
        "delta(headwater_dead_letters[1h]) > 0",
        "0m",
        "warning",
        "{{ $labels.stream }} has new dead letters: headwater dead list {{ $labels.stream }}",
    ),
    Alert(
        "WritesFail",
        "redis_aof_last_write_status == 0 or "
        "(redis_rdb_last_bgsave_status == 0 unless on (instance) headwater_journal_files)",
        "1m",
        "critical",
        "{{ $labels.instance }} cannot write to its disk: headwater explain",
    ),
    Alert(
        "MemoryFull",
        "redis_memory_used_bytes > 0.9 * redis_memory_max_bytes and redis_memory_max_bytes > 0",
        "5m",
        "warning",
        "{{ $labels.instance }} uses more than 90 % of maxmemory.",
    ),
    Alert(
        "ReplicaGone",
        "redis_connected_slaves < max_over_time(redis_connected_slaves[1h])",
        "1m",
        "warning",
        "{{ $labels.instance }} has lost a replica, {{ $value }} are left: headwater replicas",
    ),
    Alert(
        "ReplicaLags",
        "headwater_replica_behind_bytes > 67108864 or redis_connected_slave_lag_seconds > 10",
        "1m",
        "warning",
        "Replica {{ $labels.slave_ip }}:{{ $labels.slave_port }} does not keep up with {{ $labels.instance }}: "
        "headwater replicas",
    ),
    Alert(
        "PrimaryLinkDown",
        "redis_master_link_up == 0 unless redis_master_sync_in_progress == 1",
        "1m",
        "critical",
        "Replica {{ $labels.instance }} does not reach its primary {{ $labels.master_host }}: headwater replicas",
    ),
    Alert(
        "EntriesUnreadable",
        "increase(headwater_cold_read_failures_total[10m]) > 0",
        "0m",
        "critical",
        "{{ $labels.instance }} cannot read entries on disk: headwater check DIR, on a backup of it",
    ),
)


def board() -> str:
    """Return the Grafana board as JSON."""
    panels = [_panel(number, one) for number, one in enumerate(PANELS)]
    source = {
        "type": "datasource",
        "name": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }
    found: dict[str, Any] = {
        "title": "Headwater",
        "uid": "headwater",
        "tags": ["headwater", "redis"],
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "schemaVersion": 39,
        "templating": {"list": [source]},
        "panels": panels,
    }
    return json.dumps(found, indent=2) + "\n"


def _panel(number: int, one: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "title": one.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": {"h": 8, "w": 8, "x": number % 3 * 8, "y": number // 3 * 8},
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "A", "expr": one.expression, "legendFormat": one.legend, "datasource": source}
        ],
    }


def alerts() -> str:
    """Return the alert rules as YAML, in which JSON's strings are strings."""
    lines = [
        "# Written by `make docs` from tools/boards.py.",
        "groups:",
        "  - name: headwater",
        "    rules:",
    ]
    for one in RULES:
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {json.dumps(one.expression)}",
            f"        for: {one.duration}",
            f"        labels: {{severity: {one.severity}}}",
            f"        annotations: {{summary: {json.dumps(one.summary)}}}",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the files."""
    for path, text in ((BOARD, board()), (ALERTS, alerts())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT.parent)}")


if __name__ == "__main__":
    main()
