"""Live roles: each instance is polled; changes are written down with their uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from brokerdrill.base.clock import now_ns
from brokerdrill.inventory.descriptors import Descriptor
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.evidence import GAPS, LONGEST, POLLS
from brokerdrill.products.base import Management, ManagementError
from brokerdrill.runner.watching.polling import PollingWatch


@dataclass
class LastAnswer:
    """The last answer of one instance: its role; when it was last asked, and when it was asked what it last answered
    (controller's clock, ns)."""

    role: str = "starting"
    asked_ns: int = 0
    answered_ns: int = 0
    answering: bool = True


# After so long without an answer the role is unknown. Shorter gaps come from a busy controller, and the instance's log
# covers them.
GAP_NS = 5_000_000_000


@dataclass
class AnswerTimes:
    """When an instance answered (controller's clock, ns): how often, the longest time between two questions that it
    answered, and each such time above GAP_NS."""

    last_ns: int
    count: int = 0
    longest_ns: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, asked_ns: int) -> None:
        """Count the answer to the question of that time."""
        self.count += 1
        self.until(asked_ns)
        self.last_ns = max(self.last_ns, asked_ns)

    def until(self, at_ns: int) -> None:
        """Nothing was answered since the last answer until then."""
        self.longest_ns = max(self.longest_ns, at_ns - self.last_ns)
        if at_ns - self.last_ns > GAP_NS:
            self.gaps.append((self.last_ns, at_ns))


class RoleWatch(PollingWatch):
    """Polls the roles of all instances; `roles` holds the newest, `on_change` is called with each change.

    Roles before `record` are not part of the run: a broker that was active only until the steady state would look like
    the original one.
    """

    what = "the live roles"
    period_s = 0.15

    def __init__(
        self,
        instances: Mapping[str, tuple[Descriptor, Management]],
        events: EventWriter,
        on_change: Callable[[str, str], None],
    ) -> None:
        super().__init__(instances)
        self._instances = instances
        self._events = events
        self._on_change = on_change
        self._seen = {name: LastAnswer(role="") for name in instances}
        self._answers: dict[str, AnswerTimes] = {}

    @property
    def roles(self) -> dict[str, str]:
        """The newest known role of each instance."""
        return {name: seen.role for name, seen in self._seen.items()}

    def roles_since(self, since_ns: int) -> dict[str, str]:
        """The role of each instance that answered what it was asked at `since_ns` (controller's clock, ns) or later;
        an instance that did not is left out."""
        return {name: seen.role for name, seen in self._seen.items() if seen.answered_ns >= since_ns}

    async def _ask(self, name: str, asked_ns: int) -> None:
        descriptor, management = self._instances[name]
        seen = self._seen[name]
        try:
            role = await management.role()
            answering = True
        except ManagementError as error:
            # No listener means no process; silence alone says nothing about the role (a paused broker is still active).
            role, answering = ("down" if error.refused else seen.role), error.refused
        if answering != seen.answering and self._since_ns is not None:
            value = "answers" if answering else "silent"
            self._events.write("health", at_ns=now_ns(), instance=name, target=descriptor.host, value=value)
        if role != seen.role:
            if placed := self._placed(asked_ns, seen.asked_ns):
                self._write(name, role, *placed)
            self._on_change(name, role)
        self._seen[name] = LastAnswer(role, asked_ns, asked_ns if answering else seen.answered_ns, answering)
        if answering and name in self._answers:
            self._answers[name].add(asked_ns)

    async def stop(self) -> None:
        try:
            await super().stop()
        finally:
            for name, answers in self._answers.items():
                answers.until(now_ns())
                self._write_answers(name, answers)
            self._answers = {}

    def _write_answers(self, name: str, answers: AnswerTimes) -> None:
        base_ns = self._events.base_ns
        gaps = ", ".join(f"{begin - base_ns}-{end - base_ns}" for begin, end in answers.gaps)
        self._events.write(
            "polls",
            at_ns=now_ns(),
            target=self._instances[name][0].host,
            instance=name,
            name="role",
            detail={POLLS: str(answers.count), LONGEST: str(answers.longest_ns), GAPS: gaps},
        )

    def _write_known(self, at_ns: int) -> None:
        self._answers = {name: AnswerTimes(at_ns) for name in self._instances}
        for name, seen in self._seen.items():
            if seen.role:
                self._write(name, seen.role, at_ns, at_ns - seen.asked_ns)

    def _write(self, name: str, role: str, at_ns: int, uncertainty_ns: int) -> None:
        descriptor, _ = self._instances[name]
        self._events.write(
            "role",
            at_ns=at_ns,
            uncertainty_ns=uncertainty_ns,
            target=descriptor.host,
            instance=name,
            store=descriptor.store,
            name="poll",
            value=role,
        )
