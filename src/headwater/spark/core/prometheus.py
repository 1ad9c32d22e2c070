"""Serves metrics to Prometheus from this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.errors import ListenError


def serve(collector: Any, *, port: int, host: str, option: str) -> tuple[int, Callable[[], None]]:
    """Serve the metrics of ``collector`` at ``http://host:port/metrics``. Return the port, which 0 lets the system
    choose, and a function that ends it.

    Raises `ListenError`, which names ``option``, if the port is not available or prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise ListenError(
            f"{option} needs prometheus-client ({error}): pip install 'headwater[spark]'"
        ) from error
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ListenError(
            f"{option}: cannot listen at {host}:{port}: {error.strerror}; name another port"
        ) from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), end
