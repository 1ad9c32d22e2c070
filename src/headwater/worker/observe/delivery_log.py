"""Logs failed deliveries, each in a line. Entries of a batch that failed with the same error and are delivered
again share one line."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from headwater.groups.settling.settling import How, Settlement
from headwater.messages.dead import error_text
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.outcome import (
    Again,
    Condemned,
    Crashed,
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
    """Log a failed delivery or a dead letter. Acknowledgements and hand-backs are not logged."""
    if isinstance(outcome, Returned):
        return
    match outcome:
        case Raised(error) | TimedOut(error) | Crashed(error):
            if settlement.how in {How.FAIL, How.SILENT}:
                _log_failed(settlement, consumer, delivery, error)
            else:
                _log_dead(consumer, delivery, error_text(error), error)
        case Undecodable(error):
            _log_dead(consumer, delivery, error_text(error), None)
        case Exhausted():
            words = f"delivered {delivery.count - 1} times without being settled"
            _log_dead(consumer, delivery, words, None)
        case Condemned(reason):
            _log_dead(consumer, delivery, reason, None)


class Ended(NamedTuple):
    """A delivery of a batch, with its outcome and settlement."""

    outcome: HandlerOutcome
    settlement: Settlement
    delivery: Delivery


def report_batch(ended: Sequence[Ended], consumer: Consumer) -> None:
    """Log the deliveries of one batch, as `report` does. Retried deliveries with the same error share a line."""
    alike: dict[int, list[Ended]] = {}
    for one in ended:
        if isinstance(one.outcome, Raised | TimedOut | Crashed):
            alike.setdefault(id(one.outcome.error), []).append(one)
        else:
            report(*one[:2], consumer, one.delivery)
    for group in alike.values():
        outcome = group[0].outcome
        assert isinstance(outcome, Raised | TimedOut | Crashed), "these are grouped by their error"
        again = [one for one in group if not one.settlement.additions]
        dead = [one for one in group if one.settlement.additions]
        if len(again) == 1:
            report(outcome, again[0].settlement, consumer, again[0].delivery)
        elif again:
            _log_failed_together(again, consumer, outcome.error)
        for n, one in enumerate(dead):
            shown = outcome.error if n == 0 and not again else None
            _log_dead(consumer, one.delivery, error_text(outcome.error), shown)


def _log_failed_together(ended: Sequence[Ended], consumer: Consumer, error: BaseException) -> None:
    asked = isinstance(error, Again)
    delays = [one.settlement.delay_ms for one in ended]
    log.log(
        logging.INFO if asked else logging.WARNING,
        "%s %s %d entries of %s (%s to %s), again in %d to %d ms: %s",
        consumer.name,
        "put off" if asked else "failed on",
        len(ended),
        ended[0].delivery.stream,
        ended[0].delivery.id,
        ended[-1].delivery.id,
        min(delays),
        max(delays),
        error_text(error),
        exc_info=None if asked else error,
    )


def _log_failed(
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
        exc_info=None if asked or error.__traceback__ is None else error,
    )


def _log_dead(
    consumer: Consumer, delivery: Delivery, words: str, error: BaseException | None
) -> None:
    if not consumer.dead:
        log.error(
            "%s gave up on dead letter %s of %s (delivery %d of %d), which stays in the stream: %s",
            consumer.name,
            delivery.id,
            delivery.stream,
            delivery.count,
            consumer.max_deliveries,
            words,
            exc_info=error,
        )
        return
    log.warning(
        "%s of %s is now a dead letter in %s (delivery %d of %d to %s): %s",
        delivery.id,
        delivery.stream,
        consumer.dead,
        delivery.count,
        consumer.max_deliveries,
        consumer.name,
        words,
        exc_info=error,
    )
