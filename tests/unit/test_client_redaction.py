"""An address in a log line or an error shows no secret, however it is written."""

from __future__ import annotations

import pytest

from headwater.client.redaction import redacted
from headwater.client.sync.connect import connect
from headwater.errors import HeadwaterError
from headwater.worker import App


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:hunter2@db:6379", "redis://***@db:6379"),
        ("rediss://ops:p@ss/w@rd@db:6379/1", "rediss://***@db:6379/1"),
        ("unix:///run/hw.sock?password=hunter2", "unix:///run/hw.sock?***"),
        ("redis://db:6379/0?password=hunter2", "redis://db:6379/0?***"),
        ("localhost:6379", "localhost:6379"),
        ("ann:hunter2@db", "***"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize("refuse", [App, connect])
def test_the_error_for_a_refused_address_shows_no_secret(refuse: type[App]) -> None:
    with pytest.raises(HeadwaterError, match=r"http://\*\*\*@db") as refused:
        refuse("http://ann:hunter2@db:6379")
    assert "hunter2" not in str(refused.value)
