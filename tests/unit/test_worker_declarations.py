"""Every mistake in a declaration is reported at the declaration."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import Annotated, Any

import msgspec
import pytest

from headwater.common.durations import milliseconds
from headwater.errors import DeclarationError
from headwater.worker import Again, App, Backoff, Delivery, Stream, Use
from headwater.worker.declare.declaration import Consumer, declare
from headwater.worker.run.process_pool import ProcessPool
from tests.worker.apps import Invoice, Order, invoices, orders


def declared(handler: Callable[..., Any], **options: Any) -> Consumer:
    app = App("redis://localhost", name="test")
    app.consumer(orders, **{"group": "g", **options})(handler)
    return app.consumers[0]


async def handle(order: Order) -> None:
    pass


def blocking(order: Order) -> None:
    pass


def untyped(order: Any) -> None:
    pass


def renamed(order: Order) -> None:
    pass


original, renamed = renamed, blocking  # as if another decorator were around it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500ms", 1500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1.5h", 5_400_000),
        (" 2 d ", 172_800_000),
    ],
)
def test_durations_are_a_number_and_a_unit(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "wrong", ["", "30", "s", "30 parsecs", "-5s", "1e3s", "0s", "1000000d", "9" * 400 + "d", 30]
)
def test_an_invalid_duration_is_refused_with_an_example(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match=r"claim_after=.*(30s|at least 1 ms)"):
        milliseconds(wrong, what="claim_after")


def test_a_timedelta_is_a_duration() -> None:
    assert milliseconds(timedelta(minutes=1)) == 60_000


def test_defaults() -> None:
    consumer = declared(handle)
    assert (consumer.claim_after_ms, consumer.lease_ms) == (30_000, 10_000)
    assert (consumer.concurrency, consumer.prefetch) == (16, 64)
    assert consumer.max_deliveries == 5
    assert consumer.dead == "{orders}.dead"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"claim_after": "soon"}, "claim_after='soon' is not a duration"),
        ({"claim_after": "50ms"}, "it must be at least 100 ms"),
        ({"claim_after": "10s", "lease": "10s"}, "lease='10s' must be shorter than claim_after"),
        ({"concurrency": 0}, "concurrency=0 must be a whole number, at least 1"),
        ({"prefetch": True}, "prefetch=True must be a whole number"),
        ({"concurrency": 8, "prefetch": 4}, "prefetch=4 is less than concurrency=8"),
        ({"max_deliveries": 0}, "max_deliveries=0 must be a whole number, at least 1"),
        ({"max_crashes": 0}, "max_crashes=0 must be a whole number, at least 1"),
        ({"retry": "1s"}, "retry='1s' must be a Backoff"),
        ({"into": "invoices"}, "into='invoices' is not a Stream"),
        ({"group": ""}, "group='' must be the name of the consumer group"),
        ({"group": "hw.parked"}, "group='hw.parked': names that begin with 'hw.' are reserved"),
        ({"into": orders}, "into='orders' is the stream that the consumer reads"),
        ({"dead": "orders"}, "dead='orders' is the stream that the consumer reads"),
        ({"dead": 5}, "dead=5 must be the name of the dead-letter stream"),
        ({"dead": ""}, "dead='' must be the name of the dead-letter stream"),
        ({"partitions": 8}, "unknown option 'partitions': the options are .*group, claim_after"),
        ({"orderby": None, "linger": "1s"}, "unknown option 'linger', 'orderby'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        declared(handle, **options)


def test_max_deliveries_of_one_limits_nothing_else() -> None:
    consumer = declared(handle, max_deliveries=1)
    assert (consumer.concurrency, consumer.prefetch) == (16, 64)


async def test_a_handler_in_a_thread_has_a_timeout_only_under_a_supervisor() -> None:
    app = App("headwater://memory")
    app.consumer(orders, group="g", timeout="1s")(blocking)
    with pytest.raises(
        DeclarationError, match="blocking has a timeout and runs in a thread, which"
    ):
        await app.run()
    assert declared(handle, timeout="1s").timeout_ms == 1000


async def open_db() -> int:
    return 1


def with_async(order: Order, db: Annotated[int, Use(open_db)]) -> None: ...


def test_what_a_pool_process_cannot_run_is_refused_when_it_is_declared() -> None:
    def inner(order: Order) -> None: ...

    class Inner(msgspec.Struct):
        id: int

    def pooled(handler: Any, **options: Any) -> Consumer:
        return declared(handler, executor="process", **options)

    for handler, complaint in (
        (handle, "is `async def`: pool processes have no event loop"),
        (inner, "finds the handler by its name there"),
        (lambda _order: None, "finds the handler by its name there"),
        (with_async, "needs open_db, which is async"),
    ):
        with pytest.raises(DeclarationError, match=complaint):
            pooled(handler)
    with pytest.raises(DeclarationError, match=r"messages of type .*<locals>.Inner"):
        declare(untyped, Stream("inner", Inner), group="g", executor="process")
    for options, complaint in (
        ({"executor": "greenlet"}, "executor='greenlet' must be one of thread, process"),
        ({"recycle": 5}, "recycle=5: only pool processes"),
        ({"executor": "process", "recycle": 0}, "recycle=0 must be a whole number"),
        ({"executor": "process", "concurrency": 1_001}, "must be at most 1,000 with executor"),
    ):
        with pytest.raises(DeclarationError, match=complaint):
            declared(blocking, **options)


def test_by_default_there_is_a_pool_process_for_each_processor() -> None:
    consumer = declared(blocking, executor="process")
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    assert consumer.concurrency == min(16, processors or 1)
    assert declared(blocking, executor="process", concurrency=3).concurrency == 3
    assert declared(blocking).concurrency == 16


def test_a_handler_that_another_process_cannot_find_is_refused_at_the_start() -> None:
    # Given a handler whose name in its module is something else
    consumer = declare(original, orders, group="g", executor="process")
    with pytest.raises(DeclarationError, match=r"make @app\.consumer the outermost decorator"):
        ProcessPool(consumer, returns=False)


def test_one_group_of_a_stream_has_one_handler() -> None:
    app = App("redis://localhost")
    app.consumer(orders, group="g")(handle)
    with pytest.raises(
        DeclarationError, match="group 'g' of stream 'orders' has the handler handle"
    ):
        app.consumer(orders, group="g")(blocking)
    app.consumer(orders, group="other")(blocking)


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(
        DeclarationError, match="url='localhost:6379' is not the address of a store"
    ):
        App("localhost:6379")


def test_streams_need_a_name_a_known_codec_and_a_valid_maxlen() -> None:
    with pytest.raises(DeclarationError, match="a stream needs a name"):
        Stream("", Order)
    with pytest.raises(
        DeclarationError, match="unknown codec 'avro': choose one of fields, json, "
    ):
        Stream("orders", Order, codec="avro")
    with pytest.raises(DeclarationError, match="maxlen=0 must be an integer, at least 1"):
        Stream("orders", Order, maxlen=0)


# --- handlers -------------------------------------------------------------------------------------


def called(handler: Callable[..., Any]) -> Any:
    delivery = Delivery("5-1", stream="orders", group="g", consumer="c", count=2, flat=[])
    return declared(handler).call(Order(17), delivery)


def test_a_handler_gets_the_parameters_that_it_declares() -> None:
    def only_message(order: Order) -> Any:
        return order.id

    def delivery_first(delivery: Delivery, order: Order) -> Any:
        return order.id, delivery.count

    def by_keyword(order: Order, *, how: Delivery) -> Any:
        return order.id, how.id

    def positional(order: Order, /, delivery: Delivery) -> Any:
        return order.id, delivery.redelivered

    def with_default(order: Order, rate: float = 1.5) -> Any:
        return order.id, rate

    def without_annotations(order):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return order.id

    class Object:
        def __call__(self, order: Order, delivery: Delivery) -> Any:
            return order.id, delivery.stream

    assert called(only_message) == 17
    assert called(delivery_first) == (17, 2)
    assert called(by_keyword) == (17, "5-1")
    assert called(positional) == (17, True)
    assert called(with_default) == (17, 1.5)
    assert called(without_annotations) == 17
    assert called(Object()) == (17, "orders")
    assert called(functools.partial(with_default, rate=2.0)) == (17, 2.0)


def test_an_asynchronous_handler_is_recognized() -> None:
    class Async:
        async def __call__(self, order: Order) -> None:
            pass

    assert declared(handle).is_async
    assert declared(Async()).is_async
    assert declared(functools.partial(handle)).is_async
    assert not declared(blocking).is_async


def test_a_handler_that_cannot_be_called_is_refused() -> None:
    def nothing() -> None:
        pass

    def too_much(order: Order, db: object) -> None:
        pass

    def generator(order: Order) -> Iterator[int]:
        yield order.id

    async def generator_too(order: Order) -> AsyncIterator[int]:
        yield order.id

    def wrong_type(invoice: Invoice) -> None:
        pass

    refused: list[tuple[Any, str]] = [
        (nothing, "takes no message"),
        (too_much, "there is no value for parameter 'db'"),
        (generator, "is a generator: it must return"),
        (generator_too, "is a generator: it must return"),
        (wrong_type, "expects Invoice, but its stream holds Order"),
    ]
    for handler, complaint in refused:
        with pytest.raises(DeclarationError, match=complaint):
            declared(handler)
    with pytest.raises(DeclarationError, match="declared to return None, so `into` would publish"):
        declared(handle, into=invoices)


def test_a_handler_that_expects_several_messages_at_once_is_refused() -> None:
    def in_a_list(batch: list[Order]) -> None:
        pass

    def in_a_sequence(batch: Sequence[Order]) -> None:
        pass

    def of_another_type(order: dict[str, int]) -> None:
        pass

    for handler, expected in ((in_a_list, r"list\[.*Order\]"), (in_a_sequence, "Sequence")):
        with pytest.raises(DeclarationError, match=f"expects .*{expected}.*one message at a time"):
            declared(handler)
    with pytest.raises(DeclarationError, match=r"expects .*dict.*, but its stream holds Order$"):
        declared(of_another_type)


def test_equivalent_annotations_are_accepted() -> None:
    def optional(order: Order | None) -> None:
        pass

    def annotated(order: Annotated[Order, "by hand"]) -> None:
        pass

    def base(order: msgspec.Struct) -> None:
        pass

    def anything(order: Any) -> None:
        pass

    for handler in (optional, annotated, base, anything, functools.partial(lambda order: None)):
        assert declared(handler).stream is orders
    app = App("redis://localhost")
    numbers: Stream[list[int]] = Stream("numbers", list[int], codec="json")

    @app.consumer(numbers, group="g")
    def add(numbers: list[int]) -> None:
        pass

    assert app.consumers[0].handler is add


def test_a_handler_may_declare_any_message_type() -> None:
    async def anything(message: Any) -> None: ...

    async def anything_or_none(message: Any | None) -> None: ...

    async def with_a_word(delivery: Delivery, message: Annotated[Any, "as it comes"]) -> None: ...

    kinds: list[Any] = [Order, dict[str, int], list[int], int, Order | None, Any]
    for kind in kinds:
        stream: Stream[Any] = Stream("orders", kind, codec="json")
        for handler in (anything, anything_or_none, with_a_word):
            app = App("redis://localhost", name="test")
            app.consumer(stream, group="g")(handler)
            assert app.consumers[0].stream is stream


def test_an_unknown_option_is_refused_like_by_type_checkers() -> None:
    app = App("redis://localhost")
    with pytest.raises(
        DeclarationError, match=r"unknown option 'prefech': the options are .*group"
    ):
        app.consumer(stream=orders, group="g", prefech=8)  # type: ignore[call-arg]


def test_the_decorator_returns_the_function_unchanged() -> None:
    app = App("redis://localhost")
    assert app.consumer(orders, group="g")(blocking) is blocking


# --- delays ---------------------------------------------------------------------------------------


def test_a_backoff_spreads_within_its_jitter() -> None:
    backoff = Backoff("10s", factor=2, ceiling="1m", jitter=0.2)
    waits = [backoff.delay_ms(2, Random(seed)) for seed in range(200)]
    assert min(waits) >= 16_000
    assert max(waits) <= 24_000
    assert len(set(waits)) > 100
    assert 48_000 <= backoff.delay_ms(10_000, Random(1)) <= 72_000


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"factor": 0.5}, "factor=0.5 must be a number from 1 to 1,000"),
        ({"jitter": 1}, "jitter=1 must be at least 0 and less than 1"),
        ({"first": "10m"}, "ceiling='5m' is shorter than first='10m'"),
    ],
)
def test_an_invalid_backoff_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        Backoff(**options)


def test_again_accepts_a_duration() -> None:
    assert Again(after="10s").after_ms == 10_000
    assert Again().after_ms is None
    assert Again().counted
    assert not Again(counted=False).counted
    with pytest.raises(DeclarationError, match="after='later' is not a duration"):
        Again(after="later")
