"""Loads the configuration from flags, environment and file.

A flag overrides the environment (``HEADWATER_APPENDFSYNC=always``), the environment overrides the file,
and the file overrides the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headwater.config.config import NAMES, SETTINGS, Config
from headwater.config.file import Directive, directives
from headwater.config.fixed import REFUSED
from headwater.config.inert import ALIASES
from headwater.errors import ConfigError

ENVIRONMENT_PREFIX = "HEADWATER_"


def load(
    *,
    flags: Iterable[tuple[str, str]] = (),
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Load the configuration from all sources. ``environ`` defaults to the process's environment.

    >>> load(flags=[("port", "0"), ("maxclients", "50")], environ={}).maxclients
    50

    Raises `ConfigError`, whose message names the source, the setting and the remedy.
    """
    config = Config()
    if file is not None:
        config.file = Path(file).absolute()
        for place, directive in _accumulated(directives(config.file)):
            _apply(config, place, directive)
    in_file = config.dir  # flags override the environment
    environ = os.environ if environ is None else environ
    for name in (*NAMES, "user"):
        variable = ENVIRONMENT_PREFIX + name.upper().replace("-", "_")
        if variable in environ:
            _apply(config, f"environment, {variable}", Directive(name, [environ[variable]]))
    flags = list(flags)
    if any(name == "dir" for name, _ in flags):
        config.dir = in_file
    given = ((f"flag --{name}", Directive(name, [value])) for name, value in flags)
    for place, directive in _accumulated(given):
        _apply(config, place, directive)
    return config


def _accumulated(
    found: Iterable[tuple[str, Directive]],
) -> Iterator[tuple[str, Directive]]:
    """Yield the directives of one source. Each ``save`` adds to those before it in the same source, and
    an empty one removes them, as in Redis."""
    points: list[str] = []
    for place, directive in found:
        if directive.name != "save":
            yield place, directive
            continue
        text = " ".join(directive.values).strip()
        points = [*points, text] if text else []
        yield place, Directive("save", [" ".join(points)])


def flag_pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    """Parse ``--name value [value …]`` as redis-server does. Raises `ConfigError` for a stray word.

    >>> flag_pairs(["--port", "0", "--bind", "127.0.0.1", "::1", "--requirepass=x y"])
    [('port', '0'), ('bind', '127.0.0.1 ::1'), ('requirepass', 'x y')]
    """
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            found.append((name.lower(), [value] if equals else []))
        elif found:
            found[-1][1].append(word)
        else:
            raise ConfigError(f"{word!r} is not a flag; give settings as --name value")
    for name, values in found:
        if not values:
            raise ConfigError(f"flag --{name}: the value is missing; give it as --{name} value")
    return [(name, " ".join(values)) for name, values in found]


def _nearest(name: str) -> str:
    """Suggest the setting with the most similar name, or the page that lists them all."""
    from difflib import get_close_matches  # for this message only

    close = get_close_matches(name, NAMES, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "docs/reference/configuration.md lists all."


def _apply(config: Config, place: str, directive: Directive) -> None:
    name, values = directive
    if name == "user":
        words = " ".join(values).split(" ") if len(values) == 1 else values  # a flag's is one word
        config.users = (*config.users, tuple(words))
        return
    if name in REFUSED:
        raise ConfigError(f"{place}: {name!r} is not supported: {REFUSED[name]}")
    name = ALIASES.get(name, name)
    if name not in NAMES:
        raise ConfigError(f"{place}: unknown setting {name!r}; {_nearest(name)}")
    several = name not in SETTINGS or SETTINGS[name].kind.several
    if len(values) != 1 and not several:
        raise ConfigError(f"{place}: {name!r} takes one value, not {len(values)}; quote it")
    text = " ".join(values)
    try:
        config.set(name, text)
    except ValueError as error:
        raise ConfigError(f"{place}: {name!r} cannot be {text!r}: {error}") from None
