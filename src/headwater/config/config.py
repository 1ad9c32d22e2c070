"""`Config`: a value for each setting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headwater.config.access import AccessConfig
from headwater.config.clients import ClientConfig
from headwater.config.events import EventConfig
from headwater.config.execution import ExecutionConfig
from headwater.config.fixed import FIXED
from headwater.config.listening import ListeningConfig
from headwater.config.process import ProcessConfig
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
    TlsConfig,
    AccessConfig,
    StorageConfig,
    ListeningConfig,
):
    """The settings in force. Sizes in bytes, times in seconds unless the summary says otherwise.

    >>> Config(port=0).get("client-query-buffer-limit")
    '1073741824'
    """

    file: Path | None = None
    """The configuration file that was read, which CONFIG REWRITE writes."""

    def get(self, name: str) -> str:
        """The value of a setting, as CONFIG GET and a file spell it. `KeyError` for an unknown name."""
        if name in FIXED:
            return FIXED[name].value
        setting = SETTINGS[name]
        return setting.kind.report(getattr(self, setting.attribute))

    def shown(self, name: str) -> str:
        """The same as `get`, but empty for what CONFIG GET hides."""
        return "" if name in SETTINGS and SETTINGS[name].hidden else self.get(name)

    def set(self, name: str, text: str) -> None:
        """Change a setting. Raises `ValueError` with the text of CONFIG SET's error, `KeyError` for
        an unknown name; nothing has changed then."""
        if name in FIXED:
            fixed = FIXED[name]
            if text.strip() not in {fixed.value, f'"{fixed.value}"'}:
                raise ValueError(f"it stays {fixed.value or 'empty'}; {fixed.reason}")
            return
        setting = SETTINGS[name]
        current = getattr(self, setting.attribute)
        setattr(self, setting.attribute, setting.kind.changed(current, text))

    def copy(self) -> Config:
        """The same settings, which can be changed without changing these."""
        return replace(self)


SETTINGS: dict[str, Setting] = {each.name: each for each in settings_of(Config)}
"""Every declared setting, by its name."""

NAMES = (*SETTINGS, *FIXED)
"""Every name that can be given a value and asked for."""
