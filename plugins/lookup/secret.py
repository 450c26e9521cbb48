"""The lookup `secret`: a password of the inventory, made once; in check mode nothing is written."""

from __future__ import annotations

DOCUMENTATION = r"""
name: secret
short_description: A password of the inventory, made once and kept on the controller
description:
  - As the lookup P(ansible.builtin.password#lookup), which makes it. In check mode a password that is not there yet is
    made for the run alone, and the inventory's secrets stay as they are.
options:
  _terms: {description: The file that keeps it., required: true}
  length: {description: How many characters a new one has., type: int, default: 20}
  chars:
    description: The characters of a new one, as that lookup takes them.
    type: list
    elements: str
    default: [ascii_letters, digits]
  previous:
    description:
      - Return the password that a rotation which has not ended has replaced, "" where there is none. None is made.
    type: bool
    default: false
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Use the administrator's password
  ansible.builtin.set_fact:
    admin_password: "{{ lookup('brokerdrill.ha.secret', '/srv/secrets/production/admin.password', length=40) }}"
"""

RETURN = r"""
_raw: {description: The passwords., type: list, elements: str}
"""

from pathlib import Path
from typing import Any

from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.check_mode import stand_ins
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.rotation import previous


class LookupModule(LookupBase):
    """See DOCUMENTATION."""

    def run(self, terms: Any, variables: Any = None, **kwargs: Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if self.get_option("previous"):
            return [previous(Path(str(term))) for term in terms]
        words = {"length": self.get_option("length"), "chars": self.get_option("chars")}
        password = lookup_loader.get("ansible.builtin.password", loader=self._loader, templar=self._templar)
        checking = bool((variables or {}).get("ansible_check_mode"))
        return [one for term in terms for one in password.run([self._file(str(term), checking)], variables, **words)]

    @staticmethod
    def _file(term: str, checking: bool) -> str:
        """The file to read, or to make."""
        path = Path(term)
        return str(stand_ins(path.parent) / path.name) if checking and not path.exists() else term
