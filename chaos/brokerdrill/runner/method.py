"""The method of a scenario: its steps, one after the other, while the load goes on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import join

from brokerdrill.base.clock import now_ns
from brokerdrill.base.errors import Unmet
from brokerdrill.base.progress import Progress
from brokerdrill.hosts.connection import HostConnection, Result
from brokerdrill.inventory.descriptors import control
from brokerdrill.inventory.playbooks import operate, variables_file
from brokerdrill.inventory.targets import Target
from brokerdrill.inventory.topology import Topology
from brokerdrill.ledger.contract import OPERATION, ROUND
from brokerdrill.ledger.events import EventWriter
from brokerdrill.ledger.evidence import INSTANCES
from brokerdrill.runner import probes
from brokerdrill.runner.injections import Injections
from brokerdrill.runner.load.control import LoadControl
from brokerdrill.runner.system import System
from brokerdrill.scenario.model import Action, Consume, Heal, Operation, Order, Probe, Scenario, Step, Tamper
from brokerdrill.scenario.rounds import another, in_round
from brokerdrill.workload.tampering import Tampering

# Between two tries of an order that is put off, in s.
PUT_OFF_S = 1.0


@dataclass(frozen=True)
class Method:
    """What steps work on. `added_before` says how many messages were added to each of the load's addresses before it
    began."""

    topology: Topology
    connections: Mapping[str, HostConnection]
    system: System
    load: LoadControl
    injections: Injections
    added_before: Mapping[str, int]
    addresses: Sequence[str]
    events: EventWriter
    progress: Progress

    async def take(self, scenario: Scenario) -> None:
        """Follow the method of `scenario`, as often as it says; each round begins with no fault of the one before in
        effect. Raises as `follow` does."""
        if not scenario.repeated:
            await self.follow(scenario.method)
            return
        begun = now_ns()
        done = 0
        while another(done, (now_ns() - begun) / 1e9, scenario.rounds, scenario.lasting):
            await self.injections.heal_left()
            done += 1
            self._mark(done, "begin")
            self.progress.step(f"round {done}{f' of {scenario.rounds}' if scenario.rounds else ''}")
            await self.follow(in_round(scenario.method, done))
            self._mark(done, "end")

    def _mark(self, number: int, edge: str) -> None:
        """Record the begin or end of a round."""
        value = f"round {number} {edge}s"
        self.events.write("note", at_ns=now_ns(), name=str(number), value=value, detail={ROUND: edge})

    async def follow(self, steps: Sequence[Step]) -> None:
        """Take each of `steps`. Raises Unmet for the first that does not come to its end in time, InfrastructureError
        for the first that fails."""
        for step in steps:
            await asyncio.sleep(step.pauses.before)
            if isinstance(step, Action):
                await self.injections.inject(step)
            elif isinstance(step, Heal):
                await self.injections.heal(step.of)
            elif isinstance(step, Operation):
                self.injections.meddled()
                await self._operate(step)
            elif isinstance(step, Order):
                self.injections.meddled()
                await self._order(step)
            elif isinstance(step, Consume):
                await self._consume(step)
            elif isinstance(step, Tamper):
                await self._tamper(step)
            else:
                await self._probe(step)
            if isinstance(step, (Action, Heal, Operation)):
                # A probe that follows at once must not go by what was seen before.
                self.system.acted()
            await asyncio.sleep(step.pauses.after)

    async def _operate(self, step: Operation) -> None:
        """Run a playbook while the load goes on; when it began and ended is in the ledger."""
        works_on = self.injections.outages.admit_operation(step)
        begun = now_ns()
        self.progress.step(f"{step.name}: playbook {step.playbook}")
        value = f"playbook {step.playbook} begins"
        self.events.write(
            "note",
            at_ns=begun,
            name=step.name,
            value=value,
            detail={OPERATION: "begin", INSTANCES: "\n".join(works_on)},
        )
        try:
            with variables_file(step.variables) as words:
                async with asyncio.timeout(step.timeout):
                    await operate(self.topology, step.playbook, self.progress, words)
        except TimeoutError:
            raise Unmet(
                f"operation {step.name}: playbook {step.playbook} took longer than {step.timeout:.0f} s"
            ) from None
        self.injections.outages.over(step.name, healed=True)
        await self.system.renew()
        took = (now_ns() - begun) / 1e9
        value = f"playbook {step.playbook} is done"
        detail = {OPERATION: "end", "seconds": f"{took:.3f}"}
        self.events.write("note", at_ns=now_ns(), name=step.name, value=value, detail=detail)
        self.progress.step(f"{step.name}: {value} after {took:.1f} s")

    async def _order(self, step: Order) -> None:
        """Give an order; what came of it and how long that took is in the ledger."""
        begun = now_ns()
        target = self.injections.resolve(step.target)
        self.injections.outages.admit(step.name, target)
        await give_order(step, target, self.connections)
        self.injections.outages.over(step.name, healed=False)
        self._record(step.name, order_result(step), begun)
        self.progress.step(f"{step.name}: {target.describe()} was given the order {step.words!r}: {order_result(step)}")

    async def _consume(self, step: Consume) -> None:
        """Let the consumers begin."""
        begun = now_ns()
        await self.load.start_consumers()
        self._record(step.name, "consumers begin", begun)
        self.progress.step(f"{step.name}: the consumers begin")

    async def _tamper(self, step: Tamper) -> None:
        """Have a client outside of the load break what the drill says."""
        begun = now_ns()
        wanted = Tampering(step.how, step.address or self.addresses[0], step.count)
        await self.load.tamper(wanted, step.timeout)
        self._record(step.name, f"tampered: {wanted.how} {wanted.count} of {wanted.address}", begun)
        self.progress.step(f"{step.name}: {wanted.how} {wanted.count} messages of {wanted.address}")

    def _record(self, name: str, value: str, begun: int) -> float:
        """Record that a step came to its end, and return the seconds since it had `begun`."""
        took = (now_ns() - begun) / 1e9
        self.events.write("probe", at_ns=now_ns(), name=name, value=value, detail={"seconds": f"{took:.3f}"})
        return took

    async def _probe(self, step: Probe) -> None:
        """Wait for what `step` says; how long that took is in the ledger."""
        begun = now_ns()
        came: str = step.until
        try:
            if step.until == "unanswered":
                await probes.until_unanswered(step, self.system, self.load, self.addresses, self.added_before)
            else:
                condition = probes.condition(step, self.injections.injected(step.of), self.system, self.load)
                await self.system.until(condition, step.timeout, f"probe {step.name}: not {step.until}")
        except Unmet:
            if step.required:
                raise
            came = f"not {step.until}"
        took = self._record(step.name, came, begun)
        self.progress.step(f"{step.name}: {came.replace('_', ' ')} after {took:.1f} s")


def order_result(order: Order) -> str:
    """Return in a word how `order` is to end."""
    return "done" if order.refused is None else "refused"


def order_problem(order: Order, result: Result) -> str | None:
    """Return how `order` ended otherwise than it says, None where it ended so. A control command's exit status is 0
    where it was done."""
    said = _said(result)
    # A command first repeats what it is to do; why it did not comes last.
    last = said[-400:]
    if order.refused is None:
        return None if result.rc == 0 else f"refused: {last}"
    if result.rc == 0:
        return "done, not refused"
    return None if re.search(order.refused, said) else f"refused in other words than {order.refused!r}: {last}"


def is_put_off(order: Order, result: Result) -> bool:
    """Whether `order` was refused in the words after which it is given once more."""
    return result.rc != 0 and order.again is not None and bool(re.search(order.again, _said(result)))


def _said(result: Result) -> str:
    return " ".join(f"{result.out} {result.err}".split())


async def give_order(order: Order, target: Target, connections: Mapping[str, HostConnection]) -> None:
    """Give `order` to the instances of `target`, one after the other. Raises Unmet where it ends otherwise than it
    says, InfrastructureError where an instance has no control command or its host does not answer."""
    for item in target.instances:
        script = f"{control(item)} {join(order.words.split())}"
        end = now_ns() + int(order.timeout * 1e9)
        while True:
            result = await connections[item.host].sh(script, timeout=order.timeout, once=True)
            if not is_put_off(order, result) or now_ns() > end:
                break
            await asyncio.sleep(PUT_OFF_S)
        wrong = order_problem(order, result)
        if wrong:
            raise Unmet(f"order {order.name}: {item.instance} was given {order.words!r}, and it was {wrong}")
