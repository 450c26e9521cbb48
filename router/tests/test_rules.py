"""Keys, filters, and which rule takes a session."""

from __future__ import annotations

import pytest

from amqp_session_router.base.model import NO_KEY, Identity
from amqp_session_router.base.patterns import Pattern
from amqp_session_router.selection.rules import Key, KeyType, Rule, ToFarm, first_match

WHO = Identity(
    vhost="orders",
    user="alice",
    client_id="FOO-billing-7",
    source_ip="192.0.2.7",
    sni_host="mq.example.org",
    roles=("guest", "svc-admin"),
    listener="plain",
)
NOBODY = Identity(vhost="")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (KeyType.VHOST, "orders"),
        (KeyType.CLIENT_ID, "FOO-billing-7"),
        (KeyType.SNI_HOST, "mq.example.org"),
        (KeyType.SOURCE_IP, "192.0.2.7"),
        (KeyType.USER_NAME, "alice"),
        (KeyType.ROLE_NAME, "guest"),
    ],
)
def test_each_key_type_and_its_absence(kind: KeyType, value: str) -> None:
    assert Key(kind).of(WHO) == value
    assert Key(kind).of(NOBODY) == NO_KEY


def test_a_filter_is_searched_for_and_what_it_found_is_the_key() -> None:
    assert Key(KeyType.CLIENT_ID, Pattern("^.{3}")).of(WHO) == "FOO"
    assert Key(KeyType.CLIENT_ID, Pattern("[0-9]+")).of(WHO) == "7"
    assert Key(KeyType.CLIENT_ID, Pattern("dev_null")).of(WHO) == NO_KEY
    assert Key(KeyType.CLIENT_ID, Pattern("x*")).of(WHO) == NO_KEY  # it found nothing, and that is no key


def test_the_first_role_that_the_filter_finds_is_the_key() -> None:
    assert Key(KeyType.ROLE_NAME, Pattern("^svc-.*")).of(WHO) == "svc-admin"


def vhost_after(rule: Rule, vhost: str) -> str | None:
    return rule.apply(Identity(vhost=vhost))


def test_vhosts_exactly_and_by_pattern() -> None:
    to = ToFarm("f")
    assert vhost_after(Rule(to, vhost="a"), "a") == "a"
    assert vhost_after(Rule(to, vhost="a"), "ab") is None
    assert vhost_after(Rule(to, vhost=""), "") == ""
    assert vhost_after(Rule(to), "anything") == "anything"
    pattern = Pattern("team-(?P<t>.+)")
    assert vhost_after(Rule(to, vhost_pattern=pattern), "team-red") == "team-red"
    assert vhost_after(Rule(to, vhost_pattern=pattern), "my-team-red") is None


def test_rewrite_with_and_without_groups() -> None:
    to = ToFarm("f")
    pattern = Pattern("team-(?P<t>.+)")
    assert vhost_after(Rule(to, vhost_pattern=pattern, rewrite=r"\g<t>"), "team-red") == "red"
    assert vhost_after(Rule(to, vhost_pattern=pattern, rewrite=r"x/\1"), "team-red") == "x/red"
    assert vhost_after(Rule(to, vhost="a", rewrite=r"\1"), "a") == r"\1"
    assert vhost_after(Rule(to, rewrite=""), "a") == ""


def test_a_key_must_match_whole_and_null_can_be_matched() -> None:
    rule = Rule(ToFarm("f"), key=Key(KeyType.CLIENT_ID), matches=Pattern("FOO.*"))
    assert rule.apply(WHO) == "orders"
    assert rule.apply(Identity(vhost="orders", client_id="xFOO")) is None
    assert Rule(ToFarm("f"), key=Key(KeyType.CLIENT_ID), matches=Pattern("NULL")).apply(NOBODY) == ""


def test_all_conditions_must_hold_and_the_first_rule_counts() -> None:
    by_listener = Rule(ToFarm("one"), vhost="orders", listener="secure")
    by_user = Rule(ToFarm("two"), vhost="orders", key=Key(KeyType.USER_NAME), matches=Pattern("al.*"))
    rest = Rule(ToFarm("three"), rewrite="rest")
    assert first_match([by_listener, by_user, rest], WHO) == (by_user, "orders")
    assert first_match([by_listener, rest, by_user], WHO) == (rest, "rest")
    assert first_match([by_listener], WHO) is None


def test_bytes_that_are_no_utf_8_are_matched_and_come_back_as_they_were() -> None:
    strange = b"team-\xff\xc3\xa9\x80".decode("utf-8", "surrogateescape")
    assert Pattern("team-(?P<t>.+)").replace(strange, r"x/\g<t>") == "x/" + strange.removeprefix("team-")
    assert Pattern("^.{6}").find(strange) == strange[:6]
    assert Pattern("team-.{3}").matches(strange)
    assert not Pattern("[ -~]+").matches(strange)
