"""What several roles read of other hosts' variables: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HostVars = Mapping[str, Mapping[str, Any]]
"""Ansible's `hostvars`: host to its variables."""


def address_of(host: str, variables: Mapping[str, Any], name: str) -> str:
    """Return where others reach `host`: its variable `name`, else ansible_host, else its inventory name."""
    return variables.get(name, variables.get("ansible_host", host))
