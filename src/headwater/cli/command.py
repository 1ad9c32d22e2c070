"""Commands from annotated functions, by click.

    def lag(stream: Annotated[str, Positional("STREAM", help="The stream.")], *,
            longest: Annotated[str | None, Option("--max", help="…")] = None) -> None: ...

The type is the annotation's, the default is the parameter's. An option whose name is not given has the
parameter's, with hyphens. `headwater --help` imports this module: keep it light.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from enum import Enum
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import click

from headwater.common.names import escaped
from headwater.errors import HeadwaterError

F = TypeVar("F", bound=Callable[..., None])


class _Declared:
    """What an annotation says about a parameter of the command line: the arguments of click's class."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Option(_Declared):
    """An option: its names, and ``help``, ``metavar``, ``min``, ``max``, ``envvar``."""


class Positional(_Declared):
    """An argument: ``help``, ``metavar``, and ``parser`` for a function that parses its text."""


class EnumChoice(click.Choice[str]):
    """The values of an enumeration."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([one.value for one in kind])
        self._kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the member."""
        text = value.value if isinstance(value, Enum) else value
        return self._kind(super().convert(text, param, ctx))


class Parsed(click.ParamType[Any]):
    """Text that a function parses."""

    name = "text"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return what the function returns. What it refuses is a wrong command line."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except HeadwaterError as problem:
            self.fail(str(problem), param, ctx)


class CommandGroup(click.Group):
    """Subcommands in the order in which they were declared. Each is made when it is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._functions: dict[str, Callable[..., None]] = {}

    def add(self, name: str = "") -> Callable[[F], F]:
        """Return a decorator that makes a function a subcommand, under its own name or another one."""

        def added(function: F) -> F:
            self._functions[name or function.__name__] = function
            return function

        return added

    def list_commands(self, ctx: Any) -> list[str]:
        """Return their names."""
        return [*self._functions]

    def get_command(self, ctx: Any, cmd_name: str) -> click.Command | None:
        """Return a subcommand."""
        if cmd_name in self._functions and cmd_name not in self.commands:
            self.commands[cmd_name] = made(self._functions[cmd_name], f"{self.name} {cmd_name}")
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a subcommand. An unknown name is a wrong command line, which names similar ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as wrong:
            raise click.exceptions.NoSuchCommand(
                wrong.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a table of them, with the first sentences of their help in full."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, _help(function).split("\n\n")[0])
                    for name, function in self._functions.items()
                ]
            )


def made(
    function: Callable[..., None], path: str, cls: type[click.Command] = click.Command
) -> click.Command:
    """Return the command that calls a function. ``path`` is what is typed for it."""
    hints = get_type_hints(function, include_extras=True)
    parameters = [
        _parameter(one, hints[one.name]) for one in inspect.signature(function).parameters.values()
    ]
    example = f"Example: headwater {path} {EXAMPLES[path]}".rstrip() if path in EXAMPLES else None
    callback = function
    if function in _WATCHED:
        text = "Show it again every 2 seconds, until Ctrl-C."
        parameters.append(click.Option(["--watch", "-w"], is_flag=True, help=text))
        callback = _watching(function)
    return cls(
        path.rsplit(maxsplit=1)[-1],
        callback=callback,
        params=parameters,
        help=_help(function),
        epilog=example,
    )


_WATCHED: set[Callable[..., None]] = set()


def watched(function: F) -> F:
    """Give a command that only looks the option ``--watch``."""
    _WATCHED.add(function)
    return function


def _watching(function: Callable[..., None]) -> Callable[..., None]:
    def run(*, watch: bool, **given: Any) -> None:
        if not watch:
            function(**given)
            return

        def show() -> None:
            with suppress(click.exceptions.Exit):  # the status of one look
                function(**given)

        repeat(show)

    return run


def _help(function: Callable[..., None]) -> str:
    return inspect.cleandoc(function.__doc__ or "")


def _parameter(one: inspect.Parameter, annotation: Any) -> click.Parameter:
    kind, declared = get_args(annotation)
    settings: dict[str, Any] = {**declared.settings}
    kind = (
        next((part for part in get_args(kind) if part is not NoneType), kind)
        if _union(kind)
        else kind
    )
    many = get_origin(kind) is list
    if many:
        (kind,) = get_args(kind)
    if parse := settings.pop("parser", None):
        settings["type"] = Parsed(parse)
    elif bounds := {name: settings.pop(name) for name in ("min", "max") if name in settings}:
        settings["type"] = click.IntRange(**bounds)
    elif kind.__name__ == "Path":  # without an import of pathlib, which few commands need
        settings["type"] = click.Path(path_type=kind, readable=settings.pop("readable", True))
    elif issubclass(kind, Enum):
        settings["type"] = EnumChoice(kind)
    else:
        settings["type"] = kind
    if one.default is not one.empty:
        default = one.default
        settings["default"] = default.value if isinstance(default, Enum) else default
    if isinstance(declared, Positional):
        settings["nargs"] = -1 if many else 1
        required = one.default is one.empty
        settings["required"] = required
        if not required:
            settings["metavar"] = f"[{settings['metavar']}]"
            if settings.get("default") is not None:
                settings["help"] += f" [default: {settings['default']}]"
        return click.Argument([one.name], **settings)
    if kind is bool:
        settings.pop("type")
        settings["is_flag"] = True
    names = declared.names or [f"--{one.name.strip('_').replace('_', '-')}"]
    settings |= {
        "multiple": many,
        "required": one.default is one.empty,
        "show_default": "[default: " not in settings["help"],
        "show_envvar": True,
    }
    return click.Option([one.name, *names], **settings)


def _union(kind: Any) -> bool:
    return NoneType in get_args(kind)


def wrong(text: str) -> click.UsageError:
    """Return the error of a command line whose words do not go together."""
    return click.UsageError(text, click.get_current_context(silent=True))


def confirm(question: str) -> None:
    """Ask on standard error. Raises `HeadwaterError` unless the answer is yes."""
    print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise HeadwaterError("there is no answer, so nothing was changed: --yes does not ask")
    if answer.strip().lower() not in ("y", "yes"):
        raise HeadwaterError("nothing was changed")


# --- an example for each command ------------------------------------------------------------------


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
    "scheduled list": "orders",
    "scheduled cancel": "orders 1526569498055-0 --dry-run",
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
    "acl worker": "orders invoices",
    "acl viewer": "--redis",
    "acl exporter": "'orders.*'",
    "acl spark": "orders --mode group",
    "info": "--short",
}
"""The words after the command."""


# --- --watch --------------------------------------------------------------------------------------


SECONDS: Final = 2.0

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class _Screen(io.StringIO):
    """What is printed, for the same kind of output as the real one."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def repeat(show: Callable[[], object], *, pause: Callable[[float], object] = time.sleep) -> None:
    """Call ``show`` and print what it prints, until Ctrl-C. On a terminal each picture replaces the one before in one
    write, so that nothing flickers. An error is a picture too: a store may come back."""
    terminal = sys.stdout.isatty()
    while True:
        screen = _Screen(terminal=terminal)
        with redirect_stdout(screen):
            try:
                show()
            except HeadwaterError as problem:
                print(escaped(f"headwater: {problem}"))
        lines = screen.getvalue().splitlines()
        print(
            _picture(lines) if terminal else "\n".join(lines),
            end="" if terminal else "\n",
            flush=True,
        )
        pause(SECONDS)


def _picture(lines: list[str]) -> str:
    """Return what draws the lines over the last ones; as many as the terminal has."""
    room = (os.get_terminal_size(sys.stdout.fileno()).lines or 24) - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1:,} more lines"]
    drawn = "".join(f"{line}{_REST_OF_LINE}\n" for line in lines)
    return f"{_HOME}{drawn}{_REST_OF_SCREEN}"
