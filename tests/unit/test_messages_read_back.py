"""What a codec accepts, it reads back equal; what it could not read back, it refuses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from headwater.errors import DeclarationError, EncodeError
from headwater.messages import codec_for

NAN, INFINITY = math.nan, math.inf
DOCUMENTS = ("json", "msgpack", "faststream", "faststream-json")
CODECS = ("fields", *DOCUMENTS)
IN_JSON = ("json", "faststream", "faststream-json")
SECONDS_IN_OFFSET = timezone(timedelta(hours=2, seconds=7))


class Colour(Enum):
    RED = "red"
    TRUE = "true"


class Level(IntEnum):
    LOW = 1


class Number(Enum):
    ONE = 1


class Line(msgspec.Struct):
    item: str
    price: float | None = None


class Part(pydantic.BaseModel):
    item: str
    price: float | None = None


def struct(annotation: Any, **options: Any) -> Any:
    return msgspec.defstruct("Message", [("x", annotation)], **options)


def model(annotation: Any, **config: Any) -> Any:
    settings: Any = config or None
    return pydantic.create_model("Message", x=(annotation, ...), __config__=settings)


def normal(value: Any) -> Any:
    """A form in which NaN equals NaN, and values of different types never are equal."""
    if isinstance(value, float | Decimal):
        return type(value), repr(value).replace("-0.0", "0.0")
    if isinstance(value, dict):
        return dict, [(normal(k), normal(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [normal(one) for one in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, value))
    if isinstance(value, msgspec.Struct):
        return type(value), normal(msgspec.structs.asdict(value))
    if isinstance(value, pydantic.BaseModel):
        return type(value), normal(dict(value))
    if hasattr(value, "__dataclass_fields__"):
        return type(value), normal(dict(vars(value)))
    return type(value), value


# --- every type and every codec -------------------------------------------------------------------

OFFSETS = some.sampled_from([UTC, timezone(timedelta(hours=-5, minutes=-30)), SECONDS_IN_OFFSET])
ANYTHING = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**70), 2**70)
    | some.floats()
    | some.text()
    | some.binary(max_size=9)
    | some.dates()
    | some.uuids(),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(some.text() | some.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)
LEAVES: list[tuple[Any, some.SearchStrategy[Any]]] = [
    (int, some.integers() | some.sampled_from([2**31, 2**53 + 1, 2**63, 2**64 - 1, 2**64])),
    (float, some.floats()),
    (bool, some.booleans()),
    (str, some.text() | some.sampled_from(["null", "17", "true", "", "2026-01-01", "nan"])),
    (bytes, some.binary(max_size=20)),
    (datetime, some.datetimes(timezones=some.none() | OFFSETS)),
    (date, some.dates()),
    (time, some.times(timezones=some.none() | OFFSETS)),
    (timedelta, some.timedeltas()),
    (UUID, some.uuids()),
    (Decimal, some.decimals()),
    (Colour, some.sampled_from(Colour)),
    (Level, some.sampled_from(Level)),
    (Number, some.sampled_from(Number)),
    (Literal["a", "1"], some.sampled_from(["a", "1"])),
    (Literal[1, "1"], some.sampled_from([1, "1"])),
    (int | float, some.integers() | some.floats()),
    (str | int, some.text() | some.integers() | some.just("17")),
    (Literal["null"] | None, some.sampled_from(["null", None])),
    (Annotated[int, msgspec.Meta(ge=0)], some.integers()),
    (Any, ANYTHING),
]


def _around(
    leaf: tuple[Any, some.SearchStrategy[Any]],
) -> some.SearchStrategy[tuple[Any, some.SearchStrategy[Any]]]:
    values = leaf[1]
    kind: Any = leaf[0]
    maps: Any = dict[str, kind]
    rows: Any = list[kind]
    both: Any = tuple[kind, int]
    return some.sampled_from(
        [
            (kind, values),
            (kind | None, some.none() | values),
            (rows, some.lists(values, max_size=3)),
            (both, some.tuples(values, some.integers(-9, 9))),
            (maps, some.dictionaries(some.text(max_size=5), values, max_size=3)),
        ]
    )


KINDS = some.sampled_from(LEAVES).flatmap(_around)


def _struct_of(annotation: Any) -> tuple[Any, Any]:
    kind = struct(annotation)
    return kind, kind


def _dataclass_of(annotation: Any) -> tuple[Any, Any]:
    kind = make_dataclass("Message", [("x", annotation)])
    return kind, kind


def _dict_of(annotation: Any) -> tuple[Any, Any]:
    return TypedDict("Message", {"x": annotation}), dict  # type: ignore[operator]


def _model_of(annotation: Any) -> tuple[Any, Any]:
    kind = model(annotation, ser_json_bytes="base64", val_json_bytes="base64")
    return kind, kind


def _bare(annotation: Any) -> tuple[Any, Any]:
    return annotation, lambda x: x


@given(
    some.data(),
    KINDS,
    some.sampled_from(CODECS),
    some.sampled_from([_struct_of, _dataclass_of, _dict_of, _model_of, _bare]),
)
def test_what_is_declared_and_accepted_is_read_back_equal(
    data: some.DataObject, kind: tuple[Any, Any], codec: str, make: Any
) -> None:
    # Given a type of which the codec can be made, and a message of this type
    annotation, values = kind
    declared, new = make(annotation)
    try:
        found = codec_for(declared, codec)
    except DeclarationError:
        assume(False)
    value = data.draw(values)
    try:
        message = new(x=value)
    except pydantic.ValidationError:
        assume(False)

    # When it is written, unless the codec refuses it
    try:
        pairs = found.encode(message)
    except EncodeError:
        return

    # Then it is read back equal: a moment may have another zone, and a number may be an integer
    back = found.decode(pairs)
    assert normal(back) == normal(message) or back == message


PLAIN: list[tuple[Any, some.SearchStrategy[Any]]] = [
    (int, some.integers(-(2**63), 2**64 - 1)),
    (float, some.floats(allow_nan=False, allow_infinity=False)),
    (str, some.text()),
    (datetime, some.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=some.just(UTC))),  # noqa: DTZ001
    (date, some.dates()),
    (UUID, some.uuids()),
    (Decimal, some.decimals(allow_nan=False, allow_infinity=False)),
    (Colour, some.sampled_from(Colour)),
    (list[str | None], some.lists(some.none() | some.text(), max_size=3)),
    (dict[str, Any], some.dictionaries(some.text(), some.none() | some.integers(-9, 9))),
]


@given(
    some.data(),
    some.sampled_from(PLAIN),
    some.sampled_from(CODECS),
    some.sampled_from([struct, model]),
)
def test_a_message_of_ordinary_values_is_never_refused(
    data: some.DataObject, kind: tuple[Any, Any], codec: str, make: Any
) -> None:
    annotation, values = kind
    declared = make(annotation)
    message = declared(x=data.draw(values))
    found = codec_for(declared, codec)
    assert found.decode(found.encode(message)) == message


# --- refused when sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("codec", IN_JSON)
@pytest.mark.parametrize("make", [struct, model])
@pytest.mark.parametrize(
    ("annotation", "around"),
    [
        (float, lambda x: x),
        (float | None, lambda x: x),
        (list[float], lambda x: [1.0, x]),
        (dict[str, float | None], lambda x: {"a": x}),
        (Any, lambda x: x),
    ],
    ids=["float", "optional", "list", "dict", "any"],
)
def test_a_number_that_json_lacks_is_refused_with_its_field(
    codec: str, make: Any, annotation: Any, around: Any, number: float
) -> None:
    declared = make(annotation)
    with pytest.raises(EncodeError, match=r"field 'x[^']*' = .*no NaN and no infinit.*send None"):
        codec_for(declared, codec).encode(declared(x=around(number)))


@pytest.mark.parametrize("make", [struct, model])
def test_codec_fields_refuses_such_a_number_only_in_a_nested_value(make: Any) -> None:
    listed, plain = make(list[float]), make(float)
    with pytest.raises(EncodeError, match=r"field 'x.*no NaN and no infinities"):
        codec_for(listed).encode(listed(x=[1.0, NAN]))
    assert codec_for(plain).encode(plain(x=NAN)) == [(b"x", b"nan")]
    assert math.isnan(codec_for(plain).decode([(b"x", b"nan")]).x)


@pytest.mark.parametrize("make", [struct, model])
@pytest.mark.parametrize("number", [NAN, INFINITY, -INFINITY])
def test_msgpack_reads_such_a_number_back(make: Any, number: float) -> None:
    declared = make(list[float])
    found = codec_for(declared, "msgpack")
    assert repr(found.decode(found.encode(declared(x=[number]))).x) == repr([number])


def test_a_pydantic_model_that_writes_such_numbers_in_another_form_may_hold_them() -> None:
    declared = model(float, ser_json_inf_nan="strings")
    found = codec_for(declared, "json")
    assert found.encode(declared(x=INFINITY)) == [(b"data", b'{"x":"Infinity"}')]
    assert found.decode(found.encode(declared(x=INFINITY))).x == INFINITY


def test_a_none_that_was_sent_is_not_taken_for_such_a_number() -> None:
    message = [Line("tea", None), Line("cake", 2.5)]
    found = codec_for(list[Line], "json")
    assert found.decode(found.encode(message)) == message


class Bounded(msgspec.Struct):
    a: Annotated[int, msgspec.Meta(ge=0)]


class Bound(pydantic.BaseModel):
    a: int = pydantic.Field(ge=0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "message", [Bounded(-1), Bound.model_construct(a=-1)], ids=["msgspec", "pydantic"]
)
def test_a_value_outside_its_declared_bounds_is_refused(codec: str, message: Any) -> None:
    with pytest.raises(EncodeError, match=r"could not decode.*(>= 0|greater than or equal to 0)"):
        codec_for(type(message), codec).encode(message)


@dataclass
class Checked:
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a is negative")


@pytest.mark.parametrize("codec", CODECS)
def test_a_message_that_its_own_class_would_refuse_is_refused(codec: str) -> None:
    message = Checked(1)
    message.a = -1
    with pytest.raises(EncodeError, match=r"could not decode it: .*a is negative"):
        codec_for(Checked, codec).encode(message)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value", ["seventeen", None, [1], b"17"])
def test_a_value_of_another_type_is_refused(codec: str, value: Any) -> None:
    declared = struct(int)
    with pytest.raises(EncodeError, match=r"field 'x'|Message"):
        codec_for(declared, codec).encode(declared(x=value))


@pytest.mark.parametrize("codec", ["fields", "json", "msgpack"])
def test_a_time_with_seconds_in_its_offset_is_refused(codec: str) -> None:
    declared = struct(time)
    with pytest.raises(EncodeError, match=r"field 'x' = .*whole minutes, such as timezone\.utc"):
        codec_for(declared, codec).encode(declared(x=time(1, 2, 3, tzinfo=SECONDS_IN_OFFSET)))


def test_codec_json_refuses_a_moment_with_seconds_in_its_offset() -> None:
    declared = struct(datetime)
    message = declared(x=datetime(2020, 1, 1, tzinfo=SECONDS_IN_OFFSET))
    with pytest.raises(EncodeError, match=r"field 'x' = .*whole minutes, such as timezone\.utc"):
        codec_for(declared, "json").encode(message)
    for codec in ("fields", "msgpack"):
        found = codec_for(declared, codec)
        assert found.decode(found.encode(message)) == message


@pytest.mark.parametrize("codec", CODECS)
def test_a_moment_that_a_clock_shows_twice_is_read_back(codec: str) -> None:
    # Given the hour at which summer time ends, at which Python's == of two zones is always false
    moment = datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    declared = struct(datetime)
    found = codec_for(declared, codec)
    assert found.decode(found.encode(declared(x=moment))).x - moment == timedelta(0)


@pytest.mark.parametrize(
    ("codec", "value", "words"),
    [
        ("json", b"\xff", r"field 'x' = b'\\xff' would be read as '/w=='"),
        ("json", {1: "a"}, r"field 'x\.1' = 1 would be read as '1'"),
        ("json", {"at": date(2026, 1, 2)}, r"field 'x\.at' = .* would be read as '2026-01-02'"),
        ("json", [UUID(int=1)], r"field 'x\[0\]' = UUID"),
        ("json", Line("tea"), r"field 'x' = Line\(.*would be read as \{"),
        ("json", 2**64 - 0.5, None),
        ("msgpack", datetime(2026, 1, 2), "field 'x' = .* would be read as '2026"),  # noqa: DTZ001
        ("msgpack", b"\xff", None),
        ("faststream", b"\xff", None),
    ],
)
def test_an_undeclared_value_that_changes_is_refused(
    codec: str, value: Any, words: str | None
) -> None:
    declared = struct(Any)
    found = codec_for(declared, codec if codec != "faststream" else "msgpack")
    if words is None:
        assert found.decode(found.encode(declared(x=value))) == declared(x=value)
        return
    with pytest.raises(EncodeError, match=words + ".*declare the type"):
        found.encode(declared(x=value))


def test_a_tuple_is_read_as_the_declared_kind_of_collection() -> None:
    declared = struct(Sequence[int])
    found = codec_for(declared, "json")
    assert found.decode(found.encode(declared(x=(1, 2)))).x == [1, 2]


class Base(msgspec.Struct):
    id: int


class Derived(Base):
    note: str = ""


@dataclass(eq=False)
class ByIdentity:
    id: int
    tags: Mapping[str, str]


@pytest.mark.parametrize("codec", CODECS)
def test_an_attribute_that_the_declared_type_lacks_is_refused(codec: str) -> None:
    with pytest.raises(EncodeError, match="field 'note' = 'urgent' would be missing"):
        codec_for(Base, codec).encode(Derived(1, "urgent"))


@pytest.mark.parametrize("codec", DOCUMENTS)
def test_a_model_that_is_read_as_another_one_is_refused(codec: str) -> None:
    # Given two models with the same fields, of which pydantic chooses the first
    class Cat(pydantic.BaseModel):
        name: str

    class Dog(pydantic.BaseModel):
        name: str

    declared = model(Cat | Dog)
    found = codec_for(declared, codec)
    assert found.decode(found.encode(declared(x=Cat(name="Tom")))) == declared(x=Cat(name="Tom"))
    with pytest.raises(EncodeError, match=r"field 'x' = Dog\(.*would be read as Cat\("):
        found.encode(declared(x=Dog(name="Rex")))


@pytest.mark.parametrize("codec", CODECS)
def test_a_dict_may_stand_for_an_object_if_it_has_no_other_keys(codec: str) -> None:
    found = codec_for(Base, codec)
    assert found.decode(found.encode({"id": 1})) == Base(1)
    with pytest.raises(EncodeError, match="field 'note' = 'x' would be missing"):
        found.encode({"id": 1, "note": "x"})


@pytest.mark.parametrize("codec", DOCUMENTS)
def test_an_object_without_attributes_is_read_back(codec: str) -> None:
    kind = msgspec.defstruct("Ping", [], eq=False)
    found = codec_for(kind, codec)
    assert type(found.decode(found.encode(kind()))) is kind


@pytest.mark.parametrize("codec", CODECS)
def test_messages_without_equality_are_compared_by_their_attributes(codec: str) -> None:
    found = codec_for(ByIdentity, codec)
    back = found.decode(found.encode(ByIdentity(1, {"a": "b"})))
    assert (back.id, back.tags) == (1, {"a": "b"})


class Optional(TypedDict):
    id: int
    note: NotRequired[str]


@pytest.mark.parametrize("codec", CODECS)
def test_a_key_that_a_typed_dict_lacks_is_refused(codec: str) -> None:
    message: Any = {"note": "x", "id": 1}
    found = codec_for(Optional, codec)
    assert found.decode(found.encode(message)) == message
    with pytest.raises(EncodeError, match="field 'more' = 2 would be missing"):
        found.encode({**message, "more": 2})


class Kept(pydantic.BaseModel):
    password: pydantic.SecretStr


class Shown(pydantic.BaseModel):
    password: pydantic.SecretStr

    @pydantic.field_serializer("password")
    def _reveal(self, value: pydantic.SecretStr) -> str:
        return value.get_secret_value()


@pytest.mark.parametrize("codec", CODECS)
def test_a_secret_is_not_replaced_by_asterisks(codec: str) -> None:
    with pytest.raises(EncodeError, match="field 'password'"):
        codec_for(Kept, codec).encode(Kept(password=pydantic.SecretStr("pw")))
    found = codec_for(Shown, codec)
    message = Shown(password=pydantic.SecretStr("pw"))
    assert found.decode(found.encode(message)) == message


class Private(pydantic.BaseModel):
    id: int
    _cache: int = pydantic.PrivateAttr(0)


@pytest.mark.parametrize("codec", CODECS)
def test_private_attributes_of_a_model_are_not_part_of_the_message(codec: str) -> None:
    message = Private(id=1)
    message._cache = 5
    found = codec_for(Private, codec)
    assert found.decode(found.encode(message)) == Private(id=1)


NAIVE, AWARE = datetime(2026, 1, 2), datetime(2026, 1, 2, tzinfo=SECONDS_IN_OFFSET)  # noqa: DTZ001
Naive = Annotated[datetime, msgspec.Meta(tz=False)]


@pytest.mark.parametrize(
    ("annotation", "value", "carriers"),
    [
        (float, INFINITY, "fields msgpack"),
        (list[float], [INFINITY], "msgpack"),
        (Any, {"a": [None, True, 1, 2.5, "x"]}, "json faststream msgpack"),
        (dict[str, Any], {"a": [None, True, 1, 2.5, "x"]}, "fields json faststream msgpack"),
        (Any, b"\xff", "msgpack"),
        (Any, AWARE, "msgpack"),
        (Any, {1: 2}, "msgpack"),
        (str | int, "17", "json faststream msgpack"),
        (str | int, 17, "json faststream msgpack"),
        (str | None, None, "json faststream msgpack"),
        (datetime, NAIVE, "json faststream msgpack"),
        (Naive, NAIVE, "fields json faststream msgpack"),
        (datetime, AWARE, "fields msgpack"),
        (time, AWARE.timetz(), ""),
        (int, 2**64, "fields json faststream"),
        (int, -(2**63), "fields json faststream msgpack"),
        (dict[tuple[int, int], int], {(1, 2): 3}, "msgpack"),
    ],
)
def test_a_codec_carries_what_the_guide_says(annotation: Any, value: Any, carriers: str) -> None:
    # Given an attribute, with another default if it may be None
    default = ("x", annotation, "other") if value is None else ("x", annotation)
    declared = msgspec.defstruct("Message", [default])
    found = []

    # When each codec is asked to carry it
    for codec in ("fields", "json", "faststream", "msgpack"):
        try:
            codec_for(declared, codec).encode(declared(x=value))
        except (DeclarationError, EncodeError):
            continue
        found.append(codec)

    # Then those accept it that the table names
    assert found == carriers.split()
