"""What a broker says of the messages published on one AMQP 0-9-1 channel: publisher confirms, and what comes back."""

from __future__ import annotations

import time
from itertools import takewhile
from typing import Any

from pika.spec import Basic

from brokerdrill.workload.client import DONE, FAIL, UNKNOWN, Answer, Outcome

NACKED = Outcome(UNKNOWN, "nack")


class Confirms:
    """The messages of one channel that are not confirmed yet, and the answers that came.

    Facts about RabbitMQ 3.10: a broker counts what is published on a channel from 1; an Ack or Nack with `multiple` is
    of all up to its number; confirms come in any order; a message that no queue takes comes back before its Ack.
    """

    def __init__(self) -> None:
        self._published = 0
        # By number, in their order.
        self._open: dict[int, str] = {}
        self._returned: dict[str, str] = {}
        self._answers: list[Answer] = []

    def published(self, message_id: str) -> None:
        """Note that the channel's next message was published."""
        self._published += 1
        self._open[self._published] = message_id

    def take(self) -> list[Answer]:
        """Return the answers that came since."""
        found, self._answers = self._answers, []
        return found

    def __bool__(self) -> bool:
        """Whether there is an answer to take."""
        return bool(self._answers)

    def on_confirm(self, frame: Any) -> None:
        """Take in an Ack or a Nack."""
        number, taken = frame.method.delivery_tag, isinstance(frame.method, Basic.Ack)
        told = list(takewhile(lambda one: one <= number, self._open)) if frame.method.multiple else [number]
        now = time.monotonic_ns()
        for one in told:
            message_id = self._open.pop(one, None)
            if message_id is None:
                continue
            returned = self._returned.pop(message_id, None)
            outcome = Outcome(FAIL, returned) if returned else DONE if taken else NACKED
            self._answers.append(Answer(message_id, outcome, now))

    def on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """Take in a message that no queue took."""
        self._returned[properties.message_id] = f"returned: {method.reply_code} {method.reply_text}"
