"""The README has every verb and setting, as they are."""

from __future__ import annotations

from pathlib import Path

from amqp_session_router import reference
from amqp_session_router.control.verbs import VERBS

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_is_up_to_date() -> None:
    text = README.read_text("utf-8")
    assert reference.renew(text) == text, "python -m amqp_session_router.reference router/README.md"
    for table in reference.tables().values():
        assert table in text
    assert all(f"`{verb.pattern}`".replace("|", "\\|") in text for verb in VERBS)
    for setting in (
        "`farms.NAME.cache.timeout`",
        "`rules[].key.filter`",
        "`tls.ingress.client_cert`",
        "`statsd[].host`",
    ):
        assert setting in text


def test_what_stands_between_markers_is_renewed() -> None:
    text = "a\n<!-- verbs -->\nold | row\n<!-- end -->\nz\n"
    renewed = reference.renew(text)
    assert renewed.startswith("a\n<!-- verbs -->\n| verb | what it does |\n")
    assert renewed.endswith("|\n<!-- end -->\nz\n")
    assert reference.renew(renewed) == renewed
