"""An example for each command, shown at the end of its help."""

from __future__ import annotations

from typing import Any, Final

EXAMPLES: Final[dict[str, str]] = {
    "serve": "--dir data --appendfsync always",
    "work": "shop:app --workers 4",
    "explain": "orders billing",
    "doctor": "--url redis://store:6379",
    "streams list": "'orders.*' -o json",
    "streams trim": "orders --maxlen 100000 --dry-run",
    "groups list": "orders",
    "groups reset": "orders billing --back 100 --dry-run",
    "lag": "orders --max 30s",
    "tail": "orders -f --where 'total >= 100'",
    "add": "orders item=tea number=2",
    "dead list": "orders",
    "dead show": "orders 1526569498055-0",
    "dead replay": "orders --all",
    "dead drop": "orders 1526569498055-0",
    "pending list": "orders billing",
    "pending show": "orders billing 1526569498055-0",
    "pending release": "orders billing --consumer web-1 --dry-run",
    "pending claim": "orders billing --to web-2 --idle 10m",
    "pending ack": "orders billing 1526569498055-0",
    "pending bury": "orders billing --deliveries 10 --reason 'see ticket 17'",
    "retries list": "orders billing",
    "retries run": "orders billing 1526569498055-0",
    "consumers list": "orders billing",
    "consumers reap": "orders billing --unseen 1h --dry-run",
    "history": "orders 1526569498055-0 --dir data",
    "backup": "data /backups/monday",
    "restore": "/backups/monday --to data2 --at 2026-11-23T09:30:00Z",
    "repair": "data --to repaired --dry-run",
    "check": "data",
    "store": "data --streams",
    "journal verify": "data",
    "journal dump": "data --from 2026-11-23T09:30:00Z --limit 20",
    "exporter": "--url redis://store:6379 --listen 127.0.0.1:9121",
    "pipeline plan": "shop.toml",
    "pipeline run": "shop.toml",
    "pipeline status": "shop.toml",
    "pipeline quality": "shop.toml",
    "pipeline backfill": "shop.toml --table revenue --from 2026-11-23T00:00:00Z",
    "pipeline replay": "shop.toml --all",
    "pipeline repair": "shop.toml --table revenue --zone Asia/Kolkata",
    "spark pack": "--output environment.tar.gz",
    "spark env": "",
    "demo": "--flights 10000",
    "info": "--short",
}
"""The words after the command."""


def with_example(path: str, command: Any) -> Any:
    """Add the example to a command, or to each command of a group. Returns the command."""
    for name, one in getattr(command, "commands", {}).items():
        with_example(f"{path} {name}", one)
    if path in EXAMPLES:
        command.epilog = f"Example: headwater {path} {EXAMPLES[path]}".rstrip()
    return command
