"""Run as a program: read an Ansible inventory with Ansible's own code and print it as JSON.

A process of its own, because importing Ansible takes over the process's warnings, locale checks and import system.
Only variables about reaching a host and about the bench are templated: templating the rest could make passwords or
fetch files, and a vaulted value never leaves this process, but for the passwords that reaching a host needs.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ansible import constants
from ansible.cli import CLI
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import connection_loader, init_plugin_loader
from ansible.template import Templar
from ansible.vars.manager import VariableManager

TEMPLATED = ("ansible_", "bench_", "drill_", "topology_")
# Read as the roles read them: an inventory in INI has no other truth than the text.
FLAGS = ("drill_allowed", "drill_approval")
# What VariableManager adds for plays: no part of the inventory.
MAGIC = (
    "ansible_config_file",
    "ansible_facts",
    "ansible_playbook_python",
    "ansible_version",
    "environment",
    "group_names",
    "groups",
    "omit",
    "playbook_dir",
)


def _plain(value: Any) -> Any:
    """Return `value` in plain JSON types; what has none (a vaulted value) becomes null."""
    return json.loads(json.dumps(value, default=lambda _: None))


def _variables(loader: DataLoader, found: dict[str, Any]) -> dict[str, Any]:
    templar = Templar(loader=loader, variables=found)
    return {
        name: _flag(name, templar.template(value))
        if name in FLAGS
        else _plain(templar.template(value) if name.startswith(TEMPLATED) else value)
        for name, value in found.items()
        if name not in (*MAGIC, *BECOME_PASSWORDS, *PASSWORDS) and not name.startswith("inventory_")
    }


def _flag(name: str, value: Any) -> bool:
    """Return what Ansible's filter `bool` makes of `value`. Raises AnsibleError for what is neither true nor false."""
    try:
        return boolean(value)
    except TypeError:
        raise AnsibleError(f"{name} is {_plain(value)!r}, which is neither true nor false") from None


# Ansible's own names for them, the one that wins first: of those that its plugin for sudo or ssh lists the last that is
# set.
BECOME_PASSWORDS = ("ansible_sudo_pass", "ansible_become_pass", "ansible_become_password")
PASSWORDS = ("ansible_ssh_password", "ansible_ssh_pass", "ansible_password")


def _password(
    names: tuple[str, ...], loader: DataLoader, found: dict[str, Any], default: str | None = None
) -> str | None:
    """The password that sudo or sshd asks for on the host, as Ansible would give it."""
    for name in names:
        if found.get(name) is not None:
            return str(Templar(loader=loader, variables=found).template(found[name]))
    return default


def _from_file() -> str | None:
    """The password in the file that Ansible's configuration names for it (become_password_file)."""
    path = constants.config.get_config_value("BECOME_PASSWORD_FILE")
    return str(CLI.get_password_from_file(path)) if path else None


# What Ansible's configuration says of logins: by the variable of the environment that says the same.
LOGIN = {
    "ANSIBLE_REMOTE_USER": "DEFAULT_REMOTE_USER",
    "ANSIBLE_REMOTE_PORT": "DEFAULT_REMOTE_PORT",
    "ANSIBLE_PRIVATE_KEY_FILE": "DEFAULT_PRIVATE_KEY_FILE",
    "ANSIBLE_BECOME_PASSWORD_FILE": "BECOME_PASSWORD_FILE",
    "ANSIBLE_VAULT_PASSWORD_FILE": "DEFAULT_VAULT_PASSWORD_FILE",
}
# What it says of ssh, in the same way.
SSH = {
    "ANSIBLE_HOST_KEY_CHECKING": "host_key_checking",
    "ANSIBLE_SSH_ARGS": "ssh_args",
    "ANSIBLE_SSH_COMMON_ARGS": "ssh_common_args",
    "ANSIBLE_SSH_EXTRA_ARGS": "ssh_extra_args",
}


def _login() -> dict[str, str]:
    """Variable → its value, where it is not Ansible's own default."""
    connection_loader.get("ssh", PlayContext(), os.devnull)  # by that its settings are known
    found = {name: constants.config.get_config_value(setting) for name, setting in LOGIN.items()}
    for name, setting in SSH.items():
        value, origin = constants.config.get_config_value_and_origin(
            setting, plugin_type="connection", plugin_name="ssh"
        )
        found[name] = None if origin == "default" else value
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def read(sources: list[str]) -> dict[str, Any]:
    """Return {"hosts": [{"name", "groups", "vars"}, ...], "login": {variable: value}} of the inventories at `sources`,
    taken together; `login` holds for hosts of which they say nothing else."""
    init_plugin_loader()
    loader = DataLoader()
    loader.set_vault_secrets(
        CLI.setup_vault_secrets(
            loader,
            vault_ids=list(constants.DEFAULT_VAULT_IDENTITY_LIST or []),
            vault_password_files=[f for f in [constants.DEFAULT_VAULT_PASSWORD_FILE] if f],
            auto_prompt=False,
        )
    )
    inventory = InventoryManager(loader=loader, sources=sources)
    manager = VariableManager(loader=loader, inventory=inventory)
    of_all = _from_file()
    hosts = []
    for host in inventory.get_hosts():
        found = manager.get_vars(host=host)
        hosts.append(
            {
                "name": str(host.name),
                "groups": sorted(str(group.name) for group in host.get_groups() if group.name != "all"),
                "vars": _variables(loader, found),
                "become_password": _password(BECOME_PASSWORDS, loader, found, of_all),
                "password": _password(PASSWORDS, loader, found),
            }
        )
    return {"hosts": hosts, "login": _login()}


if __name__ == "__main__":
    try:
        print(json.dumps(read(sys.argv[1:])))
    except AnsibleError as error:
        print(json.dumps({"error": " ".join(str(error).split())}))
