"""Runs cases, each directly and through the router, and reports what differed."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from differential import cases
from differential.allowances import Verdict, judge
from differential.cases import Case
from differential.talk import Seen, play

_AT_ONCE = 24


@dataclass(frozen=True, slots=True)
class Result:
    """One case, what was seen of it, and what that means."""

    number: int
    case: Case
    direct: Seen
    routed: Seen
    verdict: Verdict


@dataclass(slots=True)
class Report:
    """What became of all cases, by kind."""

    cases: Counter[str] = field(default_factory=Counter)
    allowed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and allowance."""
    faults: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Count one."""
        kind = result.case.kind
        self.cases[kind] += 1
        self.allowed.update((kind, name) for name in result.verdict.used)
        if result.verdict.fault:
            self.faults.append(result)

    def lines(self) -> list[str]:
        """What differed, as text."""
        found = []
        for kind, count in sorted(self.cases.items()):
            names = ", ".join(f"{name}: {n}" for (of, name), n in sorted(self.allowed.items()) if of == kind)
            faults = sum(one.case.kind == kind for one in self.faults)
            found.append(f"{kind}: {count} cases, {faults} faults; {names or 'the same to the byte'}")
        return found


def shown(result: Result) -> str:
    """A fault, as text."""
    return "\n".join(
        [
            f"case {result.number}, {result.case.kind}: {result.case.about}",
            f"  directly: {_brief(result.direct)}",
            f"  routed:   {_brief(result.routed)}",
        ]
    )


def _brief(seen: Seen) -> str:
    said = [f"{kind}/{channel} {payload[:90]!r} ({len(payload)})" for kind, channel, payload in seen.frames[-6:]]
    return f"{len(seen.frames)} frames, {seen.end}, rest {seen.rest[:20]!r}: …{' '.join(said)}"


async def compare(broker: int, router: int, seed: int, numbers: range) -> Report:
    """Play the cases of these numbers at the broker's port and at the router's."""
    report = Report()
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            case = cases.case(seed, number)
            names = (f"case-{number:05}-{way}".encode() for way in "dr")
            direct, routed = await asyncio.gather(
                *(play(case.steps, port, broker, name) for port, name in zip((broker, router), names, strict=True))
            )
            report.add(Result(number, case, direct, routed, judge(case.kind, direct, routed)))

    await asyncio.gather(*(one(number) for number in numbers))
    return report
