"""Every setting is declared once, and its declaration is consistent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import pytest

from headwater.commands.call import StreamSettings
from headwater.config.config import NAMES, SETTINGS, Config
from headwater.config.fixed import FIXED
from headwater.config.setting import Setting, setting, settings_of
from headwater.config.tls import TLS_PROTOCOLS
from headwater.rdb.values import STREAM_FORMS
from headwater.server.log import LOG_LEVELS
from headwater.server.services.tls import VERSIONS


@dataclass(kw_only=True)
class Example:
    """Settings for this test."""

    a_number: int = setting(1, "Some number.")
    a_switch: bool = setting(True, "On or off.")
    a_choice: Literal["red", "blue"] = setting("blue", "Its colour.", secret=True)
    a_list: tuple[str, ...] = setting((), "Some words.")


def test_a_name_is_declared_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
    others = {"file", "users", "inert", "dir_in_file"}
    assert {each.attribute for each in SETTINGS.values()} | others == {
        each.name for each in fields(Config)
    }


@pytest.mark.parametrize("declared", SETTINGS.values(), ids=SETTINGS)
def test_a_default_is_a_valid_value(declared: Setting) -> None:
    assert declared.kind.parse(declared.spelled_default) == declared.default


def test_the_annotation_determines_the_kind() -> None:
    # Given declarations of each type, then each is parsed and spelled as its type
    found = {each.name: each for each in settings_of(Example)}
    assert list(found) == ["a-number", "a-switch", "a-choice", "a-list"]
    assert [found[name].spelled_default for name in found] == ["1", "yes", "blue", ""]
    assert found["a-list"].kind.parse("x y") == ("x", "y")
    with pytest.raises(ValueError, match="one of the following: red, blue"):
        found["a-choice"].kind.parse("green")
    # And the object's repr does not show a secret
    assert "blue" not in repr(Example())


def test_code_that_reads_a_choice_handles_each_value() -> None:
    assert set(LOG_LEVELS) == set(SETTINGS["loglevel"].kind.choices)
    assert set(STREAM_FORMS) == set(SETTINGS["dump-format"].kind.choices)
    assert set(VERSIONS) == set(TLS_PROTOCOLS)


def test_commands_without_a_configuration_use_the_defaults() -> None:
    assert StreamSettings().node_max_bytes == Config().stream_node_max_bytes
    assert StreamSettings(Config(stream_node_max_bytes=7)).node_max_bytes == 7


def test_every_fixed_setting_has_a_reason() -> None:
    assert [name for name, fixed in FIXED.items() if not fixed.reason] == []
