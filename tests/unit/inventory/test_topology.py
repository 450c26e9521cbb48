"""Topologies are what Ansible reads, and bad ones end in one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from brokerdrill.base import paths
from brokerdrill.base.errors import UsageError
from brokerdrill.bench.plan import plan
from brokerdrill.inventory import playbooks
from brokerdrill.inventory.topology import Topology, find_topology, fingerprint, load, meaning_fingerprint, topologies

HOSTS = """\
# Two brokers on a shelf
all:
  vars: {drill_allowed: true, base: 10.9.8, ansible_user: admin, secret_made_late: "{{ lookup('pipe', 'touch MARK') }}"}
  children:
    brokers:
      children:
        pair:
          hosts:
            b2: {ansible_host: "{{ base }}.2", ansible_port: 2222, ansible_ssh_private_key_file: keys/id}
            b1: {}
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    directory = tmp_path / "inventories" / "shelf"
    directory.mkdir(parents=True)
    (directory / "hosts.yml").write_text(HOSTS.replace("MARK", str(tmp_path / "mark")))
    return directory


def test_hosts_groups_and_connection_are_read(shelf: Path) -> None:
    topology = find_topology("shelf", shelf.parent)
    assert topology.name == "shelf"
    assert topology.directory == shelf
    assert topology.drill_allowed is True
    assert [host.name for host in topology.hosts] == ["b1", "b2"]
    b1, b2 = topology.group("brokers")
    assert (b2.address, b2.port, b2.user, b2.groups) == ("10.9.8.2", 2222, "admin", ("brokers", "pair"))
    assert b2.key_file is not None and b2.key_file.endswith("/keys/id")
    assert (b1.address, b1.port, b1.key_file) == ("b1", 22, None)
    assert topology.group("pair") == topology.hosts == topology.group("all")
    assert topology.group("nobody") == ()
    assert topology.vars["base"] == "10.9.8" and "ansible_host" not in topology.vars


def test_what_ansibles_configuration_says_of_logins_holds_for_drills_too(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hosts of which the inventory says nothing else: a deployment would reach them so."""
    config = tmp_path / "ansible.cfg"
    config.write_text("[defaults]\nremote_user = ops\nremote_port = 2022\nprivate_key_file = /keys/ops\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    text = (shelf / "hosts.yml").read_text()
    (shelf / "hosts.yml").write_text(
        text.replace(", ansible_user: admin", "").replace("b1: {}", "b1: {ansible_user: own}")
    )
    b1, b2 = find_topology("shelf", shelf.parent).group("brokers")
    assert (b1.user, b1.port, b1.key_file) == ("own", 2022, "/keys/ops")
    assert (b2.user, b2.port) == ("ops", 2222) and b2.key_file != "/keys/ops"
    # A deployment by `brokerdrill deploy` reads another configuration, and is told.
    told = playbooks._command(find_topology("shelf", shelf.parent), "site", ())[1]
    assert (told["ANSIBLE_REMOTE_USER"], told["ANSIBLE_PRIVATE_KEY_FILE"]) == ("ops", "/keys/ops")


def test_what_ansibles_configuration_says_of_ssh_holds_for_drills_too(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one in the working directory, and a word of the environment before it."""
    (tmp_path / "ansible.cfg").write_text("[defaults]\nhost_key_checking = no\n[ssh_connection]\nssh_args = -J jump\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    found = find_topology("shelf", shelf.parent)
    wanted = {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_SSH_ARGS": "-J jump"}
    assert found.login == wanted == found.hosts[0].login
    told = playbooks._command(found, "site", ())[1]
    assert wanted.items() <= told.items()
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "true")
    (shelf / "another").write_text("")
    assert find_topology("shelf", shelf.parent).login["ANSIBLE_HOST_KEY_CHECKING"] == "True"


def test_the_users_configuration_is_that_which_ansible_would_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home", "here", "given"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert paths.ansible_configuration() == paths.ROOT / "ansible.cfg"
    (tmp_path / "home" / ".ansible.cfg").touch()
    assert paths.ansible_configuration() == tmp_path / "home" / ".ansible.cfg"
    (tmp_path / "here" / "ansible.cfg").touch()
    assert paths.ansible_configuration() == tmp_path / "here" / "ansible.cfg"
    (tmp_path / "here").chmod(0o777)
    assert paths.ansible_configuration() == tmp_path / "home" / ".ansible.cfg"
    monkeypatch.setenv("ANSIBLE_CONFIG", "../given")
    assert paths.ansible_configuration() == tmp_path / "home" / ".ansible.cfg"
    (tmp_path / "given" / "ansible.cfg").touch()
    assert paths.ansible_configuration().resolve() == tmp_path / "given" / "ansible.cfg"


@pytest.mark.parametrize("name", ["ansible_password", "ansible_ssh_pass", "ansible_ssh_password"])
def test_sshs_password_is_read_as_ansible_would_and_is_no_variable(tmp_path: Path, name: str) -> None:
    (tmp_path / "hosts.yml").write_text(f'all: {{hosts: {{h1: {{{name}: "{{{{ 40 + 7 }}}}"}}, h2: {{}}}}}}')
    h1, h2 = load(tmp_path).hosts
    assert (h1.password, h2.password) == ("47", None)
    assert name not in h1.vars and name not in load(tmp_path).vars and "47" not in repr(h1)


def test_reading_makes_no_secret(shelf: Path, tmp_path: Path) -> None:
    assert "lookup" in find_topology("shelf", shelf.parent).vars["secret_made_late"]
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["ansible_become_password", "ansible_become_pass", "ansible_sudo_pass"])
def test_sudos_password_is_read_as_ansible_would_and_is_no_variable(tmp_path: Path, name: str) -> None:
    text = f'all: {{hosts: {{h1: {{{name}: "{{{{ of_sudo }}}}"}}, h2: {{}}}}, vars: {{of_sudo: 47}}}}'
    (tmp_path / "hosts.yml").write_text(text)
    h1, h2 = load(tmp_path).hosts
    assert (h1.become_password, h2.become_password) == ("47", None)
    assert name not in h1.vars and name not in load(tmp_path).vars and "become_password" not in repr(h1)


def test_of_several_passwords_that_is_sudos_which_ansible_would_take(tmp_path: Path) -> None:
    # The last that is set, of those that Ansible's sudo plugin lists (ConfigManager).
    text = "all: {hosts: {h1: {ansible_become_pass: B}}, vars: {ansible_become_password: A}}"
    (tmp_path / "hosts.yml").write_text(text)
    assert load(tmp_path).host("h1").become_password == "B"


def test_sudos_password_may_be_vaulted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vault").write_text("opens it\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "vault"))
    vaulted = subprocess.run(
        [
            Path(sys.executable).with_name("ansible-vault"),
            "encrypt_string",
            "of sudo",
            "--name",
            "ansible_become_password",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (tmp_path / "inventory" / "group_vars").mkdir(parents=True)
    (tmp_path / "inventory" / "hosts.yml").write_text("all: {hosts: {h1: {}}}")
    (tmp_path / "inventory" / "group_vars" / "all.yml").write_text(vaulted)
    assert load(tmp_path / "inventory").host("h1").become_password == "of sudo"


def test_sudos_password_may_come_from_the_file_of_ansibles_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("of all\n")
    monkeypatch.setenv("ANSIBLE_BECOME_PASSWORD_FILE", str(tmp_path / "password"))
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yml").write_text("all: {hosts: {h1: {}, h2: {ansible_become_pass: own}}}")
    assert [host.become_password for host in load(tmp_path / "inventory").hosts] == ["of all", "own"]


def test_unknown_host_names_the_nearest(shelf: Path) -> None:
    with pytest.raises(UsageError, match=r"no host of shelf is called 'b3'; did you mean 'b\d'\?"):
        load(shelf).host("b3")
    assert load(shelf).host("b1").name == "b1"


def test_one_host_that_does_not_allow_drills_forbids_them(shelf: Path) -> None:
    (shelf / "host_vars").mkdir()
    (shelf / "host_vars" / "b1.yml").write_text("drill_allowed: false\n")
    assert load(shelf).drill_allowed is False


@pytest.mark.parametrize(
    ("lines", "allowed"),
    [("", False), ("drill_allowed=true", True), ("drill_allowed=True", True), ("drill_allowed=no", False)],
)
def test_an_inventory_in_ini_allows_drills_as_it_does_for_the_roles(tmp_path: Path, lines: str, allowed: bool) -> None:
    (tmp_path / "hosts.ini").write_text(f"b1 drill_approval=true\n[all:vars]\n{lines}\n")
    found = load(tmp_path)
    assert found.drill_allowed is allowed
    assert found.host("b1").vars["drill_approval"] is True


def test_what_is_neither_true_nor_false_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("b1 drill_allowed=perhaps\n")
    with pytest.raises(UsageError, match=r"drill_allowed is 'perhaps', which is neither true nor false$"):
        load(tmp_path)


def test_unknown_topology_names_the_nearest(shelf: Path) -> None:
    with pytest.raises(UsageError, match="no topology is called 'shelv'; did you mean 'shelf'"):
        find_topology("shelv", shelf.parent)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("all: [this is no inventory\n", "cannot be read"),
        ("just text\n", "cannot be read"),
        ("all: {}\n", "has no hosts"),
        ("all: {hosts: {b1: {ansible_port: many}}}\n", "host b1 has no valid ansible_port: 'many'"),
        ("all: {hosts: {b1: {ansible_host: '{{ nowhere }}'}}}\n", "nowhere"),
    ],
)
def test_a_bad_inventory_is_one_sentence(shelf: Path, content: str, said: str) -> None:
    (shelf / "hosts.yml").write_text(content)
    with pytest.raises(UsageError) as caught:
        load(shelf)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


INI = "b1 ansible_host=10.9.8.1\nb2 ansible_host=10.9.8.2\n[brokers]\nb1\nb2\n[all:vars]\ndrill_allowed=true\n"


@pytest.mark.parametrize(
    ("name", "content", "called"),
    [
        ("hosts.yml", HOSTS, "estate"),
        ("hosts", INI, "estate"),
        ("inventory.ini", INI, "estate"),
        ("lab.ini", INI, "lab"),
    ],
)
def test_an_inventory_may_be_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, called: str
) -> None:
    """With the variables beside it, as Ansible reads them, and nothing else of its folder."""
    folder = tmp_path / "estate"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars" / "brokers.yml").write_text("drill_reconnect_s: 7\n")
    (folder / "other.yml").write_text("all: {hosts: {stranger: {}}}\n")
    file = folder / name
    file.write_text(content)
    found = load(file)
    assert (found.name, found.sources, found.folder, found.drill_allowed) == (called, (file,), folder, True)
    assert [host.name for host in found.group("brokers")] == ["b1", "b2"] == [host.name for host in found.hosts]
    assert found.host("b2").address == "10.9.8.2" and found.vars["drill_reconnect_s"] == 7
    assert find_topology(found.word).sha256 == found.sha256
    monkeypatch.chdir(folder)
    assert find_topology(name).sha256 == found.sha256
    (folder / "group_vars" / "brokers.yml").write_text("drill_reconnect_s: 8\n")
    assert fingerprint(file) != found.sha256


def test_a_missing_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no inventory /"):
        find_topology(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("# of the shelf\na: 1\nb: [x, !vault y]\n", True),
        ("a: 1\nb:\n  - x\n  - !vault 'y'\n", True),
        ("a: '1'\nb: [x, !vault y]\n", False),
        ("a: 1\nb: [!vault y, x]\n", False),
        ("a: 1\nb: [x, y]\n", False),
        ("a: 1\nb: [x, !vault y]\nc:\n", False),
        ("a: 1\nb: [x\n", False),
        ("", False),
    ],
)
def test_a_comment_and_another_layout_are_no_other_inventory(tmp_path: Path, text: str, same: bool) -> None:
    file = tmp_path / "group_vars" / "all.yml"
    file.parent.mkdir()
    file.write_text("a: 1\nb: [x, !vault y]\n")
    before = meaning_fingerprint(tmp_path)
    file.write_text(text)
    assert (meaning_fingerprint(tmp_path) == before) == same
    file.rename(file.with_name("others.yml"))
    assert meaning_fingerprint(tmp_path) != before


def test_fingerprint_follows_every_file(shelf: Path) -> None:
    before = fingerprint(shelf)
    assert fingerprint(shelf) == before
    (shelf / "group_vars").mkdir()
    (shelf / "group_vars" / "all.yml").write_text("a: 1\n")
    assert fingerprint(shelf) != before


def test_a_name_comes_with_its_bench_and_a_folder_as_it_stands(shelf: Path, tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    (bench / "group_vars").mkdir(parents=True)
    (bench / "shelf.yml").write_text("all: {hosts: {b1: {ansible_host: 10.9.8.1}}}\n")
    (bench / "group_vars" / "pair.yml").write_text("bench_memory: 1g\n")
    named, folder = find_topology("shelf", shelf.parent, bench), find_topology(shelf, shelf.parent, bench)
    assert named.sources == (shelf, bench / "shelf.yml") and folder.sources == (shelf,)
    assert (named.host("b1").address, folder.host("b1").address) == ("10.9.8.1", "b1")
    assert named.vars["bench_memory"] == "1g" and "bench_memory" not in folder.vars
    assert find_topology(named.word, shelf.parent, bench) == named != folder
    assert find_topology(folder.word, shelf.parent, bench) == folder
    before = named.sha256
    (bench / "group_vars" / "pair.yml").write_text("bench_memory: 2g\n")
    assert find_topology("shelf", shelf.parent, bench).sha256 != before


def test_list_has_names_and_descriptions(shelf: Path) -> None:
    (shelf.parent / "bare").mkdir()
    assert topologies(shelf.parent) == [("bare", ""), ("shelf", "Two brokers on a shelf")]


def test_the_shipped_topologies_load() -> None:
    names = [name for name, description in topologies() if description]
    assert "artemis_quorum" in names
    quorum = find_topology("artemis_quorum")
    assert [host.name for host in quorum.group("zookeeper")] == ["zk1", "zk2", "zk3"]
    assert {host.vars["artemis_ha_role"] for host in quorum.group("orders_pair1")} == {"primary", "backup"}
    assert [host.name for host in quorum.group("toxiproxy")] == ["artemis1", "artemis2", "load1"]
    assert quorum.drill_allowed


@pytest.fixture(scope="module", params=[name for name, _ in topologies()])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Topology:
    """What `cp -r` takes along of a topology, read under its name."""
    directory = tmp_path_factory.mktemp("production") / request.param
    return load(Path(shutil.copytree(paths.INVENTORIES / request.param, directory)))


def test_an_inventory_holds_nothing_of_its_bench(copied: Topology) -> None:
    """What is copied is the topology: no address, login, memory or volume of the bench, no leave to drill."""
    assert not copied.drill_allowed
    for host in copied.hosts:
        assert (host.address, host.key_file) == (host.name, None)
        assert not [key for key in host.vars if key.startswith(("ansible_", "bench_", "drill_", "common_inventory_"))]
        assert not [key for key in host.vars if key.endswith("_heap_mib")], "the bench's small heaps"


def test_every_topology_has_a_bench_with_the_same_hosts(copied: Topology) -> None:
    on_bench = find_topology(copied.name)
    assert [host.name for host in on_bench.hosts] == [host.name for host in copied.hosts]
    assert [host.groups for host in on_bench.hosts] == [host.groups for host in copied.hosts]
    assert on_bench.drill_allowed
    assert set(plan(on_bench).addresses) == {host.name for host in copied.hosts}
    assert all(host.vars["bench_memory"] for host in on_bench.hosts)
    assert on_bench.vars["common_inventory_name"].startswith("bench-")


def test_no_name_is_not_the_folder_where_one_is(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`brokerdrill deploy "$INVENTORY"`, where nothing has set that, deployed what stood around."""
    monkeypatch.chdir(shelf)
    with pytest.raises(UsageError, match="no topology is called ''"):
        find_topology("")
