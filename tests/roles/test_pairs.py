"""What every product with pairs shares."""

from __future__ import annotations

import pytest

from tests.roles.test_plugins import plugin

pairs = plugin("filter", "pairs")


@pytest.mark.parametrize(
    ("states", "good"),
    [
        ({"a1": "active", "a2": "passive"}, True),
        ({"a1": "passive", "a2": "active"}, True),
        ({"a1": "active", "a2": "active"}, False),
        ({"a1": "passive", "a2": "passive"}, False),
        ({"a1": "active", "a2": "syncing"}, False),
        ({"a1": "active"}, False),
    ],
)
def test_a_pair_is_healthy_with_one_active_and_passive_copies(states: dict[str, str], good: bool) -> None:
    assert (pairs.pair_problems(states, {"p1": ["a1", "a2"]}) == []) is good


ASKED = [
    {"item": {"key": "a1", "value": "a1"}, "unreachable": True, "msg": "No route to host"},
    {"item": {"key": "a2", "value": "a2"}, "state": "syncing"},
    {"item": {"key": "a3", "value": "a3"}, "failed": True, "msg": "nothing was deployed"},
]


def test_each_instance_with_newer_files_is_named_with_its_host() -> None:
    hostvars = {
        "h1": {"common_pending_restarts": {"b": ["/etc/b/x", "/etc/b/y"], "a": [], "c": ["/etc/c/z"]}},
        "h2": {"common_pending_restarts": {"d": []}},
        "h3": {},
    }
    words = "started before these files were changed, and what it does not read anew waits for a restart:"
    assert pairs.pending_restarts(["h1", "h2", "h3"], hostvars) == [
        f"b on h1 {words} /etc/b/x, /etc/b/y",
        f"c on h1 {words} /etc/c/z",
    ]
    assert pairs.pending_restarts(["h2"], hostvars) == []


def test_who_could_serve_in_anothers_place() -> None:
    ready = {"item": {"key": "a4", "value": "a4"}, "state": "passive"}
    assert pairs.successors_ready(ASKED, ["passive"]) == []
    assert pairs.successors_ready([*ASKED, ready], ["passive"]) == ["a4"]
    assert pairs.successors_ready([*ASKED, ready], ["active"]) == []
    assert pairs.successors_seen(ASKED) == "a1 unreachable, a2 syncing, a3 unknown"
    assert pairs.successors_seen([]) == "there is no other"
