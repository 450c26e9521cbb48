"""Looks at queues: whose messages wait in one before a run, and which of its own are on a dead-letter address after it.

Nothing that is not the drill's is changed by a look: where a client's protocol cannot browse but by taking messages and
giving them back, it looks at queues of the drill's own alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from brokerdrill.workload import header
from brokerdrill.workload.client import DONE, FAIL, SELECTS, TAKES, Client, ClientError, Delivery, Outcome
from brokerdrill.workload.client_loop import ClientLoop, Stopped
from brokerdrill.workload.config import ClientSpec, WorkerConfig
from brokerdrill.workload.ledger_writer import ClientLedger, Op

# So many ids of messages that nobody knows are said.
EXAMPLES = 3


@dataclass(frozen=True)
class Look:
    """What to look at: the queue `address` of the broker `instance`, which counts `messages` in it. `drills`: the queue
    is the drill's own. `own`: only this run's messages are asked for."""

    address: str
    instance: str
    messages: int = 0
    drills: bool = False
    own: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object whose items `Look(**object)` takes."""
        return asdict(self)


@dataclass(frozen=True)
class QueueContents:
    """What a look saw: how many messages of each run, by its tag, and `foreign` ones that no run has sent, some of
    whose ids are `examples`. `error`: why it did not see all of the queue, None where it did."""

    address: str
    instance: str
    by_run: Mapping[str, int] = field(default_factory=dict)
    foreign: int = 0
    examples: Sequence[str] = ()
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object whose items `QueueContents(**object)` takes."""
        return asdict(self)


class Browser(ClientLoop):
    """Looks once, with a row of the look itself and one of each message of this run that it saw. Messages of others
    have no row: they are no part of the run."""

    def __init__(
        self,
        config: WorkerConfig,
        spec: ClientSpec,
        client: Client,
        ledger: ClientLedger,
        stop: threading.Event,
        look: Look,
    ) -> None:
        super().__init__(config, spec, client, ledger, stop)
        self._look = look
        self._tag = header.tag_of(config.run_id)
        self._done = False
        # What a look that never came to an end saw.
        self.seen = QueueContents(look.address, look.instance, error="the look did not end in time")

    def run(self) -> None:
        """Look, then close. Raises LedgerError."""
        try:
            self._connect((), ())
            self._browse()
        except Stopped:
            pass
        finally:
            if not self._done:
                self._end(self._ledger.begin("browse", self._session, address=self._look.address), self.seen.error)
            self._disconnect()

    def _end(self, begun: Op, error: str | None) -> None:
        self._ledger.end(begun, DONE if error is None else Outcome(FAIL, error), self._endpoint)
        self._done = True

    def _browse(self) -> None:
        look = self._look
        begun = self._ledger.begin("browse", self._session, address=look.address)
        try:
            found = self._found()
        except ClientError as error:
            self.seen = QueueContents(look.address, look.instance, error=str(error))
            self._end(begun, self.seen.error)
            return
        self.seen = seen(look, self._client.browsing == SELECTS and look.own, self._tag, found)
        self._end(begun, self.seen.error)
        for item in found:
            if not item.left_by and not item.foreign:
                self._row(item)

    def _found(self) -> list[Delivery]:
        """Browse. Raises ClientError, also where that would change what is not the drill's."""
        client, look = self._client, self._look
        if client.browsing == TAKES and not look.drills:
            raise ClientError(
                f"clients of {client.protocol} cannot look into {look.address} but by taking its messages and giving "
                "them back, and it is not the drill's own"
            )
        return list(client.browse(look.address, own=look.own))

    def _row(self, item: Delivery) -> None:
        one = self._ledger.begin("browse", self._session, address=self._look.address)
        self._ledger.end(
            one,
            DONE,
            self._endpoint,
            message_id=item.message_id,
            attempt=item.attempt,
            producer_seq=item.seq,
            key=item.key,
            redelivered=item.redelivered,
            payload_sha=item.sha,
        )


def seen(look: Look, chosen: bool, tag: str, found: Sequence[Delivery]) -> QueueContents:
    """Return what a look of the run with `tag` saw that `found` these messages; `chosen`: the broker had looked through
    all of the queue for them. Otherwise fewer than it counts are not all."""
    by_run = Counter(item.left_by or tag for item in found if not item.foreign)
    foreign = [item.message_id for item in found if item.foreign]
    whole = chosen or len(found) >= look.messages
    short = f"the broker shows {len(found)} of the {look.messages} messages that it counts there"
    return QueueContents(
        look.address, look.instance, dict(by_run), len(foreign), foreign[:EXAMPLES], None if whole else short
    )
