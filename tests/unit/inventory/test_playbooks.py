"""What is told of a playbook that failed: the error that was the end of a host, in its own words."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from brokerdrill.base.errors import InfrastructureError, UsageError
from brokerdrill.base.progress import Progress
from brokerdrill.inventory.playbooks import _Reader, extra_vars, refusals

LOG = Path("deploy.log")


def told(*lines: str) -> str:
    reader = _Reader(Progress(Console(file=io.StringIO())))
    for line in lines:
        reader.line(line)
    with pytest.raises(InfrastructureError) as raised:
        reader.end(2, LOG)
    return str(raised.value)


def test_the_first_host_that_ends_is_told() -> None:
    assert (
        told(
            "TASK [artemis : Start] ***",
            "ok: [a]",
            "[ERROR]: Task failed: Module failed: no such unit",
            'fatal: [b]: FAILED! => {"msg": "no such unit"}',
            'fatal: [c]: FAILED! => {"msg": "another one"}',
        )
        == "b: task 'artemis : Start' failed: no such unit (all of it: deploy.log)"
    )


def test_an_error_that_was_rescued_is_not_told() -> None:
    assert (
        told(
            "TASK [openmq : Restore] ***",
            "[ERROR]: Task failed: Module failed: non-zero return code",
            "changed: [b] => (item=recreate)",
            'failed: [b] (item=restore) => {"msg": "non-zero return code"}',
            "TASK [openmq : Put back] ***",
            "changed: [b] => (item=recreate)",
            "TASK [openmq : Nothing was restored] ***",
            'fatal: [b]: FAILED! => {"msg": "the file was not restored"}',
            "TASK [openmq : Start] ***",
            "ok: [c]",
        )
        == "b: task 'openmq : Nothing was restored' failed: the file was not restored (all of it: deploy.log)"
    )


def test_an_item_that_failed_is_told_whatever_became_of_the_others() -> None:
    assert (
        told(
            "TASK [common : Install] ***",
            'failed: [b] (item=one) => {"msg": "no package one"}',
            "ok: [b] => (item=two)",
        )
        == "b: task 'common : Install' failed: no package one (all of it: deploy.log)"
    )


def test_of_a_result_that_is_hidden_the_reason_is_told() -> None:
    assert told(
        "TASK [openmq : Make] ***",
        "[ERROR]: Task failed: Module failed: it timed out",
        'fatal: [b]: FAILED! => {"censored": "the output has been hidden", "changed": true}',
    ) == ("b: task 'openmq : Make' failed: Task failed: Module failed: it timed out (all of it: deploy.log)")


def test_what_ends_no_host_is_told_where_nothing_else_is() -> None:
    assert told("[ERROR]: couldn't resolve module/action 'nothing'") == (
        "couldn't resolve module/action 'nothing' (all of it: deploy.log)"
    )
    assert told() == "ansible-playbook ended with status 2; see deploy.log"


def test_a_refusal_of_preflight_is_the_users() -> None:
    reader = _Reader(Progress(Console(file=io.StringIO())))
    reader.line("TASK [artemis : Preflight] ***")
    reader.line('fatal: [a]: FAILED! => {"msg": "no pair"}')
    with pytest.raises(UsageError, match="preflight refuses a: no pair"):
        reader.end(2, LOG)


def test_what_preflight_refuses_is_told_of_all_hosts_at_once() -> None:
    reader = _Reader(Progress(Console(file=io.StringIO())))
    reader.line("TASK [artemis : Preflight] ***")
    for host, why in (("a", "no pair"), ("b", "no heap"), ("c", "no pair")):
        reader.line(f'fatal: [{host}]: FAILED! => {{"msg": "{why}"}}')
    with pytest.raises(UsageError, match="preflight refuses a, c: no pair; preflight refuses b: no heap"):
        reader.end(2, LOG)


def test_what_is_ignored_is_kept_and_ends_nothing() -> None:
    reader = _Reader(Progress(Console(file=io.StringIO())))
    for line in ("TASK [artemis : Preflight] ***", 'fatal: [a]: FAILED! => {"msg": "no pair"}', "...ignoring"):
        reader.line(line)
    reader.end(0, LOG)
    assert refusals(reader.failed) == ["preflight refuses a: no pair"]


def test_variables_go_to_the_playbook_as_they_are() -> None:
    given = ["artemis_version=2.44.0", '{"openmq_leaving": ["openmq3"]}', "@/etc/more.yml"]
    assert extra_vars(given) == ["--extra-vars", given[0], "--extra-vars", given[1], "--extra-vars", given[2]]


def test_a_file_of_variables_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert extra_vars(["@more.yml"]) == ["--extra-vars", f"@{tmp_path}/more.yml"]


@pytest.mark.parametrize("wrong", ["artemis_version", "@", "", "[1]", "=2"])
def test_what_is_no_variable_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="write NAME=VALUE, a mapping as JSON, or @FILE"):
        extra_vars([wrong])
