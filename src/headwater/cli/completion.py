"""``headwater --show-completion`` and ``--install-completion``: the script by which a shell completes commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from headwater.errors import HeadwaterError

_PLACES: Final = {
    "bash": ".local/share/bash-completion/completions/headwater",
    "fish": ".config/fish/completions/headwater.fish",
    "zsh": ".zfunc/_headwater",
}
"""Where each shell looks for scripts, below the home directory."""


def _shell() -> str:
    name = Path(os.environ.get("SHELL") or "bash").name
    if name not in _PLACES:
        raise HeadwaterError(f"there is no completion for {name}: set SHELL to bash, zsh or fish")
    return name


def script(app: click.Command) -> str:
    """Return the script of the shell that SHELL names. Raises `HeadwaterError` for an unknown shell."""
    kind = get_completion_class(_shell())
    assert kind is not None
    return kind(app, {}, "headwater", "_HEADWATER_COMPLETE").source()


def install(app: click.Command) -> str:
    """Write the script where the shell finds it; return what to tell the user."""
    shell = _shell()
    path = Path.home() / _PLACES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(app), encoding="utf-8")
    told = f"wrote {path}; it takes effect in new shells"
    if shell == "zsh":
        return f"{told} if ~/.zshrc has: fpath+=~/.zfunc; autoload -Uz compinit && compinit"
    return told
