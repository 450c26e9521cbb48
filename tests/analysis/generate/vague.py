"""What was seen roughly or late: messages that wait, clocks that are off, roles by polls, hosts that start anew."""

from __future__ import annotations

import random

from tests.analysis.generate.draft import MS, Draft, Row, S


def keep_waiting(draft: Draft, addresses: list[str]) -> None:
    """Let messages wait where faults hit: acknowledged by who was hit before, most of them delivered afterwards."""
    rng = random.Random(f"{draft.run_id}/waiting")
    for number, fault in enumerate([row for row in draft.events if row["kind"] == "fault" and row.get("instance")]):
        if rng.random() < 0.5:
            continue
        t, address, by = fault["t_ns"], rng.choice(addresses), fault["instance"]
        message = {"address": address, "message_id": f"waiting-{number}", "payload_sha": "sha"}
        sent = t - rng.choice((MS, 2 * MS, rng.randint(20 * MS, 2 * S)))
        if sent < 0:
            continue
        more: Row = {"durable": rng.random() < 0.9}
        if rng.random() < 0.1:
            more["expires_ns"] = t + S
        outcome = rng.choice(("ok", "ok", "ok", "unknown"))
        draft.op("patient", "send", sent, sent + rng.choice((MS // 2, MS, S)), outcome, instance=by, **message, **more)
        for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 2))):
            got = t + rng.choice((-MS // 2, 0, MS, rng.randint(MS, 4 * S)))
            name = f"patient-{number}-{got}"
            draft.op("taker", "receive", got - MS, got, "ok", instance=by, delivery=name, **message)
            acked = rng.choice(("ok", "ok", "unknown"))
            draft.op("taker", "ack", got + 1, got + 2, acked, address=address, delivery=name)


def read_clocks(draft: Draft) -> None:
    """Write readings of some clocks: one or many, on a line or not, some of them vague, some after a step."""
    rng = draft.seen
    for name, clock in sorted(draft.clocks.items()):
        if rng.random() >= 0.3:
            continue
        drift = rng.choice((0, 0, 50, 300, 20_000))  # parts in a million
        step_at = rng.randint(*draft.load) if rng.random() < 0.2 else draft.drain[1] + 10 * S
        step = rng.choice((2 * MS, 700 * MS, -300 * MS))
        for _ in range(rng.choice((1, 2, 3, 8, 40))):
            at = rng.randint(S, draft.drain[1])
            off = clock.offset_ns + at * drift // 1_000_000 + (step if at > step_at else 0)
            u = rng.choice((10_000, 100_000, MS, 300 * MS)) if rng.random() < 0.3 else 100_000
            off += rng.randint(-u, u) if rng.random() < 0.5 else 0
            detail = {"offset_ns": str(off)}
            if rng.random() < 0.95:
                detail["uncertainty_ns"] = str(u)
            row = {"kind": "clock", "t_ns": at, "clock": "controller", "uncertainty_ns": None, "name": name}
            draft.events.append({**row, "detail": detail})


def blur(draft: Draft) -> None:
    """Make some roles as vague as polls are where the controller is busy; their logs tell some of them surely. The
    end of who was hit may have been seen before the fault."""
    rng = draft.seen
    if rng.random() < 0.6:
        return
    roles = [row for row in draft.events if row["kind"] == "role" and row["t_ns"] > 2 * S]
    for row in roles:
        if rng.random() < 0.3:
            row["uncertainty_ns"] = rng.choice((300 * MS, S, 3 * S))
        if rng.random() < 0.3:
            at = row["t_ns"] + rng.choice((0, rng.randint(-200 * MS, 400 * MS)))
            value = row["value"] if row["value"] == "active" else rng.choice((row["value"], "down"))
            draft.events.append({**row, "t_ns": at, "uncertainty_ns": 5 * MS, "name": "log", "value": value})
    for fault in [row for row in draft.events if row["kind"] == "fault" and row.get("instance")]:
        ends = [e for e in roles if e["instance"] == fault["instance"] and e["value"] == "down"]
        if ends and rng.random() < 0.4:
            ends[0]["t_ns"] = fault["t_ns"] - rng.randint(0, 300 * MS)
            ends[0]["uncertainty_ns"] = rng.choice((0, 150 * MS, 400 * MS))


def hit_again(draft: Draft) -> None:
    """Let some faults restart the host, whose log then lacks some time, and hit some instances twice."""
    rng = draft.seen
    for fault in [row for row in draft.events if row["kind"] == "fault" and row.get("instance")]:
        if rng.random() < 0.15:
            again = {**fault, "t_ns": fault["t_ns"] + rng.randint(MS, 2 * S), "name": rng.choice(("kill", "stop"))}
            draft.events.append(again)
            if rng.random() < 0.5:
                at = again["t_ns"] + rng.randint(MS, 3 * S)
                draft.events.append({**again, "kind": "heal", "t_ns": at, "detail": {"by": "runner"}})
        if rng.random() >= 0.15:
            continue
        for row in draft.events:
            same = all(row.get(name) == fault.get(name) for name in ("name", "instance"))
            if same and row is not fault and row["kind"] == "heal":
                row["name"] = "restart_host"
        fault["name"] = "restart_host"
        gap = fault["t_ns"] + rng.randint(-20 * MS, 100 * MS), fault["t_ns"] + rng.randint(200 * MS, 4 * S)
        whole = {"kind": "note", "t_ns": draft.drain[1] + MS, "clock": "controller", "name": "log read"}
        whole |= {"uncertainty_ns": None, "instance": fault["instance"]}
        for begin, end in ((draft.load[0] - S, gap[0]), (gap[1], draft.drain[1] + MS)):
            draft.events.append({**whole, "detail": {"from_ns": str(begin), "until_ns": str(end)}})
