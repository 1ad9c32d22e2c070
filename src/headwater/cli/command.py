"""Makes click commands from annotated functions.

    def lag(stream: Annotated[str, Positional(metavar="STREAM", help="The stream.")], *,
            longest: Annotated[str | None, Option("--max", help="…")] = None) -> None: ...

The annotation gives the type, and the parameter the default. An option without a name of its own gets the
parameter's name, with hyphens. The example in a command's help comes from its module's docstring. This module must
import little, because `headwater --help` imports it.
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
    """The declaration of a command-line parameter in an annotation: its names and its settings."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


class Option(_Declared):
    """An option: its names, and ``help``, ``metavar``, ``parser``, ``min``, ``max``, ``envvar``, ``readable``."""


class Positional(_Declared):
    """A positional argument: ``help``, ``metavar``, ``readable``, and ``parser``, which parses its text."""


class EnumChoice(click.Choice[str]):
    """A parameter type whose choices are the values of an enumeration."""

    def __init__(self, kind: type[Enum]) -> None:
        super().__init__([one.value for one in kind])
        self._kind = kind

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the member of the enumeration."""
        text = value.value if isinstance(value, Enum) else value
        return self._kind(super().convert(text, param, ctx))


class Parsed(click.ParamType[Any]):
    """A parameter type that parses its text by a function."""

    name = "text"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the parsed value. A `HeadwaterError` of the parser becomes a usage error (exit status 2)."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except HeadwaterError as problem:
            self.fail(str(problem), param, ctx)


class CommandGroup(click.Group):
    """Subcommands in the order of their declaration. Each click command is made when it is first used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._functions: dict[str, Callable[..., None]] = {}

    def add(self, name: str = "") -> Callable[[F], F]:
        """Return a decorator that adds a function as a subcommand, under ``name`` or the function's name."""

        def added(function: F) -> F:
            self._functions[name or function.__name__] = function
            return function

        return added

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the subcommands."""
        return [*self._functions]

    def get_command(self, ctx: Any, cmd_name: str) -> click.Command | None:
        """Return a subcommand; None for an unknown name."""
        if cmd_name in self._functions and cmd_name not in self.commands:
            self.commands[cmd_name] = made(self._functions[cmd_name], f"{self.name} {cmd_name}")
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a subcommand. The usage error for an unknown name suggests similar ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as wrong:
            raise click.exceptions.NoSuchCommand(
                wrong.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a table of the subcommands, each with the first paragraph of its help."""
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
    """Return the click command that calls ``function``. ``path`` is its words, such as ``streams list``."""
    hints = get_type_hints(function, include_extras=True)
    parameters = [
        _parameter(one, hints[one.name]) for one in inspect.signature(function).parameters.values()
    ]
    callback = function
    if function in _WATCHED:
        text = "Repeat every 2 seconds, until Ctrl-C."
        parameters.append(click.Option(["--watch", "-w"], is_flag=True, help=text))
        callback = _watching(function)
    return cls(
        path.rsplit(maxsplit=1)[-1],
        callback=callback,
        params=parameters,
        help=_help(function),
        epilog=_example(function, path),
    )


_WATCHED: set[Callable[..., None]] = set()


def watched(function: F) -> F:
    """Add the option ``--watch`` to a command that only reads."""
    _WATCHED.add(function)
    return function


def _watching(function: Callable[..., None]) -> Callable[..., None]:
    def run(*, watch: bool, **given: Any) -> None:
        if not watch:
            function(**given)
            return

        def show() -> None:
            with suppress(click.exceptions.Exit):  # such as `UNHEALTHY`: go on
                function(**given)

        repeat(show)

    return run


def _help(function: Callable[..., None]) -> str:
    return inspect.cleandoc(function.__doc__ or "")


def _example(function: Callable[..., None], path: str) -> str | None:
    """Return the example for a command's help: the first line of its module's docstring that runs the command."""
    lines = map(str.strip, (sys.modules[function.__module__].__doc__ or "").splitlines())
    runs = (line for line in lines if f"{line} ".startswith(f"headwater {path} "))
    return next((f"Example: {line}" for line in runs), None)


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
        settings["type"] = click.IntRange(**{"max": _LARGEST, **bounds})
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


_LARGEST: Final = 2**63 - 1
"""The largest number that servers accept."""


def _union(kind: Any) -> bool:
    return NoneType in get_args(kind)


def wrong(text: str) -> click.UsageError:
    """Return the error for wrong or missing arguments, with the exit status 2."""
    return click.UsageError(text, click.get_current_context(silent=True))


def confirm(question: str) -> None:
    """Ask on standard error. Raises `HeadwaterError` unless the answer is yes."""
    print(f"{escaped(question)} [y/N]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise HeadwaterError("nothing was changed: no answer; --yes skips the question")
    if answer.strip().lower() not in ("y", "yes"):
        raise HeadwaterError("nothing was changed")


# --- --watch --------------------------------------------------------------------------------------


SECONDS: Final = 2.0

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class _Screen(io.StringIO):
    """A buffer for the output of one repetition. `isatty` is true if the real output is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def repeat(show: Callable[[], object], *, pause: Callable[[float], object] = time.sleep) -> None:
    """Call ``show``, print its output and wait `SECONDS`, again and again until Ctrl-C. On a terminal, one write
    replaces the last output, to avoid flicker. A `HeadwaterError` does not end the repetition. It is printed in place
    of the output on a terminal, otherwise on standard error, as programs read the output."""
    terminal = sys.stdout.isatty()
    while True:
        screen = _Screen(terminal=terminal)
        with redirect_stdout(screen):
            try:
                show()
            except HeadwaterError as problem:
                place = screen if terminal else sys.stderr
                print(escaped(f"headwater: {problem}"), file=place)
        printed = screen.getvalue()
        print(_picture(printed.splitlines()) if terminal else printed, end="", flush=True)
        pause(SECONDS)


def _picture(lines: list[str]) -> str:
    """Return the text that draws the lines over the previous ones, cut to the height of the terminal."""
    room = (os.get_terminal_size(sys.stdout.fileno()).lines or 24) - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1:,} more lines"]
    drawn = "".join(f"{line}{_REST_OF_LINE}\n" for line in lines)
    return f"{_HOME}{drawn}{_REST_OF_SCREEN}"
