"""Commits of the CORE client that end with each of the exceptions that its library throws."""

from __future__ import annotations

import jpype
import pytest

from brokerdrill.workload.core_jms import CoreJms
from tests.workload.conftest import config_for
from tests.workload.standalone_broker import Broker


class BrokenSession:
    """A session whose commit and, on order, rollback end with exceptions of these types."""

    def __init__(self, commit: str, rollback: str | None) -> None:
        self._commit, self._rollback = commit, rollback
        self.rollbacks = 0

    def commit(self) -> None:
        raise core_exception(self._commit)

    def rollback(self) -> None:
        self.rollbacks += 1
        if self._rollback:
            raise core_exception(self._rollback)


def core_exception(kind: str) -> Exception:
    """A JMSException around the client's own exception of that type, as the library throws it."""
    types = jpype.JClass("org.apache.activemq.artemis.api.core.ActiveMQExceptionType")
    inner = jpype.JClass("org.apache.activemq.artemis.api.core.ActiveMQException")(
        types.valueOf(kind), "on order\nmore"
    )
    outer = jpype.JClass("javax.jms.JMSException")("outer")
    outer.initCause(inner)
    return outer


@pytest.mark.parametrize(
    ("commit", "rollback", "resent", "result", "usable", "rollbacks"),
    [
        ("TRANSACTION_ROLLED_BACK", None, True, "fail", True, 0),
        ("TRANSACTION_OUTCOME_UNKNOWN", None, True, "unknown", True, 0),
        ("UNBLOCKED", None, True, "unknown", True, 1),
        ("UNBLOCKED", "NOT_CONNECTED", True, "unknown", False, 1),
        ("DUPLICATE_ID_REJECTED", None, True, "ok", True, 1),
        ("DUPLICATE_ID_REJECTED", "UNBLOCKED", True, "ok", False, 1),
        ("DUPLICATE_ID_REJECTED", None, False, "fail", True, 1),
        ("CONNECTION_TIMEDOUT", None, True, "unknown", False, 0),
        ("NOT_CONNECTED", None, True, "unknown", False, 0),
        ("OBJECT_CLOSED", None, True, "unknown", False, 0),
    ],
)
def test_commit_outcomes(
    broker: Broker, commit: str, rollback: str | None, resent: bool, result: str, usable: bool, rollbacks: int
) -> None:
    """Nothing of a batch in doubt may stay in the session: its own retry would be refused, and pass for proven."""
    one = CoreJms(config_for(broker), "test")
    session = BrokenSession(commit, rollback)
    one._session = session
    outcome = one.commit(resent=resent)
    assert (outcome.result, outcome.usable, session.rollbacks) == (result, usable, rollbacks)
    assert outcome.error == ("duplicate" if result == "ok" else f"{commit}: on order")
