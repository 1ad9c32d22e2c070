"""What the log says about the end of a delivery: a line for each that did not succeed."""

from __future__ import annotations

import logging

from headwater.groups.settling import Settlement
from headwater.messages import error_text
from headwater.worker.declaration import Consumer
from headwater.worker.delivery import Delivery
from headwater.worker.outcome import (
    Again,
    Condemned,
    Exhausted,
    HandlerOutcome,
    Raised,
    Returned,
    TimedOut,
    Undecodable,
)

log = logging.getLogger("headwater.worker")


def report(
    outcome: HandlerOutcome, settlement: Settlement, consumer: Consumer, delivery: Delivery
) -> None:
    """Log a failed delivery or a dead letter; an acknowledgement and a hand-back say nothing."""
    if isinstance(outcome, Returned):
        return
    match outcome:
        case Raised(error) | TimedOut(error):
            if settlement.additions:
                _say_dead(consumer, delivery, error_text(error), error)
            else:
                _say_failed(settlement, consumer, delivery, error)
        case Undecodable(error):
            _say_dead(consumer, delivery, error_text(error), None)
        case Exhausted():
            words = f"delivered {delivery.count - 1} times without being settled"
            _say_dead(consumer, delivery, words, None)
        case Condemned(reason):
            _say_dead(consumer, delivery, reason, None)


def _say_failed(
    settlement: Settlement, consumer: Consumer, delivery: Delivery, error: BaseException
) -> None:
    asked = isinstance(error, Again)
    counted = "" if not isinstance(error, Again) or error.counted else ", not counted"
    log.log(
        logging.INFO if asked else logging.WARNING,
        "%s %s %s of %s (delivery %d of %d%s), again in %d ms: %s",
        consumer.name,
        "put off" if asked else "failed on",
        delivery.id,
        delivery.stream,
        delivery.count,
        consumer.max_deliveries,
        counted,
        settlement.delay_ms,
        error_text(error),
        exc_info=None if asked else error,
    )


def _say_dead(
    consumer: Consumer, delivery: Delivery, words: str, error: BaseException | None
) -> None:
    log.warning(
        "%s of %s is a dead letter in %s now (delivery %d of %d to %s): %s",
        delivery.id,
        delivery.stream,
        consumer.dead,
        delivery.count,
        consumer.max_deliveries,
        consumer.name,
        words,
        exc_info=error,
    )
