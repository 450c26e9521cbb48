"""transparent: no call fails or is left in doubt."""

from __future__ import annotations

from brokerdrill.ledger.contract import PromiseSpec
from tests.analysis.oracle.facts import Facts, deaths
from tests.analysis.oracle.rows import NEVER, Row, entry


def transparent(facts: Facts, spec: PromiseSpec) -> Row:
    """ "each send, acknowledgement, prepare, commit and rollback that is fail or unknown breaks it" """
    calls = facts.of("send", "ack", "prepare", "commit", "rollback")
    # "what a killed client had begun, and did not end, nobody saw fail"
    killed = deaths(facts)
    calls = [c for c in calls if c.get("end_ns") is not None or c["start_ns"] > killed.get(c["client"], -NEVER)]
    bad = [op for op in calls if op["outcome"] in ("fail", "unknown")]
    witnesses = [{"at": op["start_ns"], "client": op["client"], "op": op["op"]} for op in bad]
    verdict = "fail" if bad else "pass" if calls else "unknown"
    return entry(spec, verdict, len(bad), witnesses=witnesses)
