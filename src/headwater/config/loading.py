"""Loads the configuration from flags, environment and file.

A flag overrides the environment (``HEADWATER_APPENDFSYNC=always``), the environment overrides the file,
and the file overrides the defaults.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headwater.config.config import NAMES, SETTINGS, Config
from headwater.config.file import Directive, directives
from headwater.config.fixed import REFUSED
from headwater.config.inert import ALIASES, INERT, InertSetting
from headwater.config.kinds import Flags
from headwater.config.setting import Setting
from headwater.errors import ConfigError
from headwater.resp.inline import quote

ENVIRONMENT_PREFIX = "HEADWATER_"


def load(
    *,
    flags: Iterable[tuple[str, str | list[str]]] = (),
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Load the configuration from all sources. ``environ`` defaults to the process's environment.

    >>> load(flags=[("port", "0"), ("maxclients", "50")], environ={}).maxclients
    50

    Raises `ConfigError`, whose message names the source (file and line, variable or flag) and what is wrong.
    """
    config = Config()
    points: list[str] = []
    if file is not None:
        config.file = Path(file).absolute()
        for place, directive in _accumulated(directives(config.file), points):
            _apply(config, place, directive)
    in_file = config.dir  # a --dir flag is relative to this, not to the environment's
    users = len(config.users)  # those of the file, which the others replace
    environ = os.environ if environ is None else environ
    for name in (*NAMES, "user"):
        variable = ENVIRONMENT_PREFIX + name.upper().replace("-", "_")
        if variable in environ:
            _apply(config, f"environment, {variable}", Directive(name, [environ[variable]]))
    given = [
        (f"flag --{name}", Directive(name, [value] if isinstance(value, str) else value))
        for name, value in flags
    ]
    dirs = [" ".join(directive.values) for _, directive in given if directive.name == "dir"]
    if dirs:
        config.dir = in_file
    for place, directive in _accumulated(given, points, again=True):
        _apply(config, place, directive)
    dirs = dirs or [environ.get(f"{ENVIRONMENT_PREFIX}DIR", "")]
    if config.dir != in_file and not any(map(os.path.isabs, dirs)):
        config.dir_in_file = in_file
    of_file, others = config.users[:users], config.users[users:]
    replaced = {name for name, *_rules in others}
    config.users = (*(user for user in of_file if user[0] not in replaced), *others)
    return config


def _accumulated(
    found: Iterable[tuple[str, Directive]], points: list[str], *, again: bool = False
) -> Iterator[tuple[str, Directive]]:
    """Yield the directives; the value of each ``save`` becomes all save points so far. As in Redis, a ``save``
    adds to ``points``, the save points of earlier lines and flags, and an empty ``save`` removes all of them.
    With ``again``, it adds only new ones: CONFIG REWRITE writes those of flags to the file, and the flags
    are given again at the next start."""
    for place, directive in found:
        if directive.name != "save":
            yield place, directive
            continue
        words = " ".join(directive.values).split()
        pairs = [" ".join(words[at : at + 2]) for at in range(0, len(words), 2)]
        added = [pair for pair in pairs if not again or pair not in points]
        points[:] = [*points, *added] if words else []
        yield place, Directive("save", [" ".join(points)])


def flag_pairs(words: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Parse ``--name value …`` as redis-server does. A word may contain a name and its values. The word after a
    name is a value even if it begins with ``--``, except after ``--save``. The first name, or the first after a
    file, may lack dashes. Raises `ConfigError` for a stray word or a wrong number of values.

    >>> flag_pairs(["--port", "0", "--bind", "127.0.0.1", "::1", "--requirepass=x y"])
    [('port', ['0']), ('bind', ['127.0.0.1', '::1']), ('requirepass', ['x y'])]
    """
    found: list[tuple[str, list[str]]] = []
    for word in words:
        awaits = bool(found) and not found[-1][1] and found[-1][0] != "save"
        begins = not found or (found[-1][0] == "config" and found[-1][1])
        if begins and word.lower() in NAMES:
            word = f"--{word}"
        if word.startswith("--") and len(word) > 2 and not awaits:
            name, equals, value = word[2:].partition("=")
            if " " in name:
                name, *values = map(str, shlex.split(word[2:]))
            else:
                values = [value] if equals else []
            found.append((name.lower(), values))
        elif found:
            found[-1][1].append(word)
        else:
            raise ConfigError(f"{word!r} is not a flag; give settings as --name value")
    for name, values in found:
        _check_count(f"flag --{name}", Directive(name, values))
    return found


def _check_count(place: str, directive: Directive) -> None:
    """Raise `ConfigError` for a setting that lacks its value, or has several where it takes one."""
    name, values = ALIASES.get(directive.name, directive.name), directive.values
    declared = _declared(name)
    kind = None if declared is None else declared.kind
    known = name in NAMES or name in {"user", "config"}
    if known and not values and not (name == "save" or isinstance(kind, Flags)):
        need = "needs a value"
    elif len(values) > 1 and (
        name == "config" or (name in SETTINGS and not SETTINGS[name].kind.several)
    ):
        need = "takes one value: quote it"
    else:
        return
    given = _given(directive)
    raise ConfigError(f"{place}: {given}: wrong number of arguments; {directive.name} {need}")


def _declared(name: str) -> Setting | InertSetting | None:
    return SETTINGS.get(name) or INERT.get(name)


def _given(directive: Directive) -> str:
    """Return a directive as Redis's errors show it, with ``(redacted)`` for the values of a secret."""
    name, values = directive
    declared = _declared(ALIASES.get(name, name))
    if declared is not None and declared.secret:
        values = ["(redacted)"] * len(values)
    encoded = (word.encode("utf-8", "surrogateescape") for word in values)
    words = (quote(word, always=True).decode() for word in encoded)
    return f"'{' '.join([name, *words])}'"


def _nearest(name: str) -> str:
    """Return a hint: the setting with the most similar name, or the page that lists all settings."""
    from difflib import get_close_matches  # for this message only

    close = get_close_matches(name, NAMES, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "docs/reference/configuration.md lists all."


def _apply(config: Config, place: str, directive: Directive) -> None:
    name, values = directive
    if name == "user":
        words = " ".join(values).split(" ") if len(values) == 1 else values  # a flag is one word
        config.users = (*config.users, tuple(words))
        return
    if name in REFUSED:
        raise ConfigError(f"{place}: {name!r} is not supported: {REFUSED[name]}")
    name = ALIASES.get(name, name)
    if name not in NAMES:
        raise ConfigError(
            f"{place}: Bad directive or wrong number of arguments: unknown setting {name!r}; {_nearest(name)}"
        )
    _check_count(place, directive)
    text = " ".join(values)
    try:
        config.set(name, text)
    except ValueError as error:
        raise ConfigError(f"{place}: {_given(directive)}: {error}") from None
