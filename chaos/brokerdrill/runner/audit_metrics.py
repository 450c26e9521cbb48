"""What an audit found, as metrics in a file that Prometheus' node exporter reads: so that a certificate which is about
to end raises an alarm, and an audit that is not made any more does, too."""

from __future__ import annotations

from collections.abc import Sequence

from brokerdrill.base.exposition import metric
from brokerdrill.runner.audit import Audited

_AUDIT = "brokerdrill_audit"


def exposition(inventory: str, hosts: Sequence[Audited], now_s: float) -> list[str]:
    """Return the metrics of an audit of `inventory` that was made at `now_s` (Unix time), in lines. When a certificate
    ends is left out where that was not seen, of a host that could not be asked or one whose peers do not trust it."""
    of = {"inventory": inventory}
    asked = [({**of, "host": one.host}, float(not one.away)) for one in hosts]
    found = [({**of, "host": one.host}, float(len(one.findings))) for one in hosts if not one.away]
    seen = [
        ({**of, "host": one.host, "instance": served.instance, "listener": served.listener}, served)
        for one in hosts
        for served in one.certificates
    ]
    ends = [
        ({**labels, "whose": whose}, ends_s)
        for labels, served in seen
        for whose, ends_s in (("certificate", served.ends_s), ("authority", served.authority_ends_s))
        if ends_s is not None
    ]
    return [
        *metric(f"{_AUDIT}_last_timestamp_seconds", "Audits: when the last one was made", [(of, now_s)]),
        *metric(f"{_AUDIT}_host_asked", "Audits: 1: the host was asked, 0: it could not be", asked),
        *metric(f"{_AUDIT}_findings", "Audits: how much was found at the host", found),
        *metric(
            f"{_AUDIT}_certificate_trusted",
            "Audits: 1: peers trust what the listener serves",
            [(labels, float(served.trusted)) for labels, served in seen],
        ),
        *metric(
            f"{_AUDIT}_certificate_end_timestamp_seconds", "Audits: when the certificate or its authority ends", ends
        ),
    ]
