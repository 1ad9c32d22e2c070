"""`Config`: the values of all settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from headwater.config.access import AccessConfig
from headwater.config.clients import ClientConfig
from headwater.config.events import EventConfig
from headwater.config.execution import ExecutionConfig
from headwater.config.fixed import FIXED
from headwater.config.inert import ALIASES, FIXED_AFTER_START, HIDDEN, INERT
from headwater.config.kinds import FilePath
from headwater.config.listening import ListeningConfig
from headwater.config.memory import MemoryConfig
from headwater.config.process import ProcessConfig
from headwater.config.replication import ReplicationConfig
from headwater.config.setting import Setting, settings_of
from headwater.config.storage import StorageConfig
from headwater.config.streams import StreamConfig
from headwater.config.tls import TlsConfig


@dataclass(kw_only=True)
class Config(
    ProcessConfig,
    ExecutionConfig,
    StreamConfig,
    EventConfig,
    ClientConfig,
    MemoryConfig,
    TlsConfig,
    AccessConfig,
    StorageConfig,
    ListeningConfig,
    ReplicationConfig,
):
    """The current settings. Sizes are in bytes and times in seconds unless the summary says otherwise.

    >>> Config(port=0).get("client-query-buffer-limit")
    '1073741824'
    """

    file: Path | None = None
    """The configuration file that was loaded and that CONFIG REWRITE writes; None if no file was loaded."""
    dir_in_file: str | None = None
    """The data directory before the relative one of a flag or variable, which is relative to it. CONFIG REWRITE writes
    this one, because the flag or variable applies again at the next start. None without such a flag or variable."""
    inert: dict[str, str] = field(default_factory=dict)
    """Values given to settings without effect (inert.py), by name."""

    def get(self, name: str) -> str:
        """Return a setting's value as CONFIG GET and files format it. Raises `KeyError` for an unknown name."""
        name = ALIASES.get(name, name)
        if name in FIXED:
            return FIXED[name].value
        if name in INERT:
            return self.inert.get(name, INERT[name].default)
        setting = SETTINGS[name]
        return setting.kind.report(getattr(self, setting.attribute))

    def shown(self, name: str) -> str:
        """Return the value as `get` does, or an empty string if CONFIG GET hides the setting's value."""
        return "" if name in SETTINGS and SETTINGS[name].hidden else self.get(name)

    def set(self, name: str, text: str) -> None:
        """Change a setting. Raises `ValueError` with the text of CONFIG SET's error for an invalid value, or
        `KeyError` for an unknown name; after an error the setting is unchanged."""
        name = ALIASES.get(name, name)
        if name in INERT:
            kind = INERT[name].kind
            self.inert = {**self.inert, name: kind.spell(kind.parse(text))}
            return
        if name in FIXED:
            fixed = FIXED[name]
            if text.strip().lower() not in {fixed.value, f'"{fixed.value}"'}:
                if fixed.kind is not None:
                    fixed.kind.parse(text)
                raise ValueError(f"the only value is {fixed.value or 'empty'}; {fixed.reason}")
            return
        setting = SETTINGS[name]
        current = getattr(self, setting.attribute)
        setattr(self, setting.attribute, setting.kind.changed(current, text))

    def copy(self) -> Config:
        """Return a copy that can be changed without changing this one."""
        return replace(self)

    def located(self) -> Config:
        """Return a copy whose paths, except ``dir``, are absolute. Relative paths are resolved against ``dir``."""
        base = Path(self.dir).absolute()
        made = self.copy()
        for name in PATHS:
            if getattr(self, name):
                setattr(made, name, str(base / getattr(self, name)))
        return made


SETTINGS: dict[str, Setting] = {each.name: each for each in settings_of(Config)}
"""All declared settings by name."""

PATHS = tuple(each.attribute for each in SETTINGS.values() if isinstance(each.kind, FilePath))
"""Attribute names of the settings that are paths relative to ``dir``."""

NAMES = (*SETTINGS, *FIXED, *INERT, *ALIASES)
"""All names that CONFIG GET and CONFIG SET accept."""

LISTED = tuple(
    name for name in NAMES if name not in HIDDEN and not (name in FIXED and FIXED[name].hidden)
)
"""Names that a pattern of CONFIG GET can match."""


def fixed_after_start(name: str) -> str:
    """Return the reason why CONFIG SET cannot change the setting ``name``; empty if it can."""
    name = ALIASES.get(name, name)
    if name in SETTINGS:
        return SETTINGS[name].fixed_after_start
    return FIXED_AFTER_START.get(name, "")
