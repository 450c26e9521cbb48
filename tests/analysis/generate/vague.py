"""What was seen roughly or late: messages that wait, clocks that are off, roles by polls, hosts that start anew."""

from __future__ import annotations

import random

from tests.analysis.generate.draft import MS, Draft, Row, S


def keep_waiting(draft: Draft, addresses: list[str]) -> None:
    """Let messages wait where faults hit: acknowledged by who was hit before, most of them delivered afterwards. In
    half of the ledgers some are delivered by who is halted, or were given back before, and who takes them goes for
    a while."""
    rng = random.Random(f"{draft.run_id}/waiting")
    wild = rng.random() < 0.5
    waiting = False
    for number, fault in enumerate([row for row in draft.events if row["kind"] == "fault" and row.get("instance")]):
        if rng.random() < 0.15:
            fault["value"] = "both"
        if rng.random() < (0.5 if wild else 0.2):
            continue
        t, address, by = fault["t_ns"], rng.choice(addresses), fault["instance"]
        instances = [one for named in draft.stores.values() if by in named for one in named]
        message = {"address": address, "message_id": f"waiting-{number}", "payload_sha": "sha"}
        sent = t - rng.choice((MS, 2 * MS, rng.randint(20 * MS, 2 * S), rng.randint(20 * MS, 2 * S)))
        if sent < 0:
            continue
        waiting = True
        more: Row = {"durable": rng.random() < 0.9}
        if rng.random() < 0.1:
            more["expires_ns"] = t + S
        outcome = rng.choice(("ok", "ok", "ok", "unknown"))
        who = rng.choice((by, by, *instances, None)) if wild else by
        took = rng.choice((MS // 2, MS, S))
        draft.op("patient", "send", sent, sent + took, outcome, instance=who, **message, **more)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3)) if wild else 1):
            got = t + rng.choice((rng.randint(MS, 4 * S), rng.randint(MS, 4 * S), MS, 0, -MS // 2, -10 * MS))
            name = f"patient-{number}-{got}"
            who = rng.choice((by, *instances, None)) if wild else rng.choice(instances)
            draft.op("taker", "receive", got - MS, got, "ok", instance=who, delivery=name, **message)
            acked = rng.choice(("ok", "ok", "unknown", "fail"))
            draft.op("taker", "ack", got + 1, got + 2, acked, address=address, delivery=name)
        if wild:
            come_and_go(draft, rng, address, t)
        if rng.random() < 0.1 and draft.mapped:
            dead = {"address": "DLQ", "message_id": message["message_id"]}
            draft.op("inspector", "browse", t + 4 * S, t + 4 * S + 1, "ok", **dead)
    if waiting and rng.random() < 0.8:
        draft.op("taker", "connect", draft.load[0], draft.load[0] + MS, "ok")
        draft.op("taker", "receive", draft.load[1], draft.drain[1], "fail", address=rng.choice(addresses))


def come_and_go(draft: Draft, rng: random.Random, address: str, fault: int) -> None:
    """Let the one who takes close, connect again, and wait in vain; somebody else, too."""
    for client in ("taker", "helper") if rng.random() < 0.3 else ("taker",):
        for _ in range(rng.choice((0, 0, 1, 3))):
            at = fault + rng.choice((0, MS, rng.randint(-S, 3 * S)))
            op = rng.choice(("close", "close", "connect", "receive"))
            end = None if rng.random() < 0.1 else at + rng.choice((MS, S, 3 * S))
            where = {"address": address} if op == "receive" else {}
            draft.op(client, op, at, end, "ok" if op != "receive" else "fail", **where)


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
