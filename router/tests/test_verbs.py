"""A verb is one declaration, which cannot contradict itself; old verbs keep their order, scope and what they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amqp_session_router.control import merging
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Scope, Verb
from amqp_session_router.control.verbs.table import VERBS, find


def edit(data: Data, arguments: Arguments) -> None:
    """Change nothing."""


def act(service: Any, arguments: Arguments) -> dict[str, Any]:
    """Do nothing."""
    return {}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: Verb("A", "", Changes.NOTHING), "either edit or act"),
        (lambda: Verb("A", "", Changes.CONFIGURATION, edit=edit, act=act), "either edit or act"),
        (lambda: Verb("A", "", Changes.NOTHING, edit=edit), "an edit changes the configuration"),
        (lambda: Verb("A", "", Changes.NOTHING, act=act, scope=Scope.EACH), "need merge"),
        (lambda: Verb("A", "", Changes.NOTHING, act=act, merge=merging.first), "need merge"),
        (lambda: Verb("A <name>", "", Changes.NOTHING, act=act, scope=Scope.OWNER), "found by <id>"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_none(made: Callable[[], Verb], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        made()


def test_each_pattern_is_there_once_and_families_stand_together() -> None:
    patterns = [verb.pattern for verb in VERBS]
    assert len(set(patterns)) == len(patterns)
    assert [verb.family for verb in VERBS] == sorted(verb.family for verb in VERBS)


def test_a_verb_that_shows_something_changes_nothing_and_the_others_are_in_the_log() -> None:
    looks = {verb.pattern for verb in VERBS if verb.changes is Changes.NOTHING}
    words = {"PRINT", "HELP", "CONN", "TEST", "DRIFT"}
    expected = {verb.pattern for verb in VERBS if words & {*verb.pattern.split()}}
    assert looks == expected | {"STAT LISTEN <format> [filter]"}


def test_who_does_what_among_several_workers() -> None:
    each = {verb.pattern for verb in VERBS if verb.scope is Scope.EACH}
    assert each == {
        "BACKEND BACKEND_DISCONNECT <name>",
        "BACKEND FORCE_DISCONNECT <name>",
        "BACKEND PRINT",
        "CONN [filter...]",
        "EXIT [seconds] [grace] [rate]",
        "FARM REBALANCE <name> [rate]",
        "STAT DISABLE <which>",
        "STAT ENABLE <which>",
        "STICKY CLEAR <farm>",
        "STICKY PRINT",
        "VHOST BACKEND_DISCONNECT <vhost>",
        "VHOST DISCONNECT_GRACEFUL <vhost>",
        "VHOST FORCE_DISCONNECT <vhost>",
        "VHOST PRINT",
        "WORKERS PRINT",
    }
    assert all((verb.scope is Scope.OWNER) == (verb.family == "SESSION") for verb in VERBS)


def test_the_pattern_with_the_most_words_of_its_own_counts() -> None:
    assert find(["tls", "ingress", "ciphers", "print"])[0].pattern == "TLS INGRESS CIPHERS PRINT"
    assert find(["LIMIT", "print"])[0].pattern == "LIMIT PRINT [vhost]"
