"""Finds the functions that the declarations of the command table name, once, at import."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headwater.commands.table import Command, every_command


def functions_of(package: str, *, on_session: bool) -> dict[bytes, Callable[..., Any]]:
    """Return the functions in the modules of ``package``, by the names of their commands: ``XADD``,
    ``XGROUP|CREATE``.

    If ``on_session`` is true, these are the commands on sessions and services, otherwise those on keys. Raises
    `ImportError` if a declaration names a function that does not exist.
    """
    return {
        command.name.upper().encode(): _function_of(command, package)
        for command in every_command()
        if command.run and command.on_session == on_session
    }


def _function_of(command: Command, package: str) -> Callable[..., Any]:
    place, _, name = command.function_name.rpartition(".")
    path = f"{package}.{place}"
    error = f"the command {command.name!r} is declared with run={command.run!r}, but"
    try:
        module = import_module(path)
    except ModuleNotFoundError as missing:
        if missing.name != path:
            raise
        raise ImportError(f"{error} there is no module {path}") from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        raise ImportError(f"{error} {path} has no function {name}")
    return function
