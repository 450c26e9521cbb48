"""Run as a program: read an Ansible inventory with Ansible's own code and print it as JSON.

A process of its own, because importing Ansible takes over the process's warnings, locale checks and import system.
Only variables about reaching a host and about the bench are templated: templating the rest could make passwords or
fetch files, and a vaulted value never leaves this process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ansible import constants
from ansible.cli import CLI
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
from ansible.vars.manager import VariableManager

TEMPLATED = ("ansible_", "bench_", "drill_", "topology_")
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
        name: _plain(templar.template(value) if name.startswith(TEMPLATED) else value)
        for name, value in found.items()
        if name not in MAGIC and not name.startswith("inventory_")
    }


def read(sources: list[str]) -> dict[str, Any]:
    """Return {"hosts": [{"name", "groups", "vars"}, ...]} of the inventories at `sources`, taken together."""
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
    return {
        "hosts": [
            {
                "name": str(host.name),
                "groups": sorted(str(group.name) for group in host.get_groups() if group.name != "all"),
                "vars": _variables(loader, manager.get_vars(host=host)),
            }
            for host in inventory.get_hosts()
        ]
    }


if __name__ == "__main__":
    try:
        print(json.dumps(read(sys.argv[1:])))
    except AnsibleError as error:
        print(json.dumps({"error": " ".join(str(error).split())}))
