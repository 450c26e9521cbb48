"""The lookup `products`: which products the collection has, in the order in which they are deployed."""

from __future__ import annotations

DOCUMENTATION = r"""
name: products
short_description: The collection's products, in the order of a deployment
description:
  - A product is a role with a file C(meta/product.yml). Its name is also that of its group in the inventory.
options:
  tasks: {description: Only products whose role has this task file., type: str}
  uses: {description: Only products that depend on this one., type: str}
  tools: {description: "Only the drills' own tools, or only what is none.", type: bool}
  details:
    description: Return mappings with name, client, metrics and metrics_files instead of names.
    type: bool
    default: false
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Restart what can be restarted on this host
  ansible.builtin.include_role:
    name: brokerdrill.ha.{{ product }}
    tasks_from: restart
  loop: "{{ query('brokerdrill.ha.products', tasks='restart') | select('in', group_names) }}"
  loop_control: {loop_var: product}
"""

RETURN = r"""
_raw: {description: "Names, or mappings with C(details).", type: list}
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.products import read_all


class LookupModule(LookupBase):
    """See DOCUMENTATION."""

    def run(self, terms: Any, variables: Any = None, **kwargs: Any) -> list[Any]:
        self.set_options(var_options=variables, direct=kwargs)
        tasks, uses, tools = (self.get_option(name) for name in ("tasks", "uses", "tools"))
        try:
            products = read_all()
        except ValueError as error:
            raise AnsibleLookupError(str(error)) from None
        found = [
            product
            for product in products
            if (not tasks or tasks in product.tasks)
            and (not uses or uses in product.uses)
            and (tools is None or product.tool == tools)
        ]
        if not self.get_option("details"):
            return [product.name for product in found]
        kept = ("name", "client", "metrics", "metrics_files")
        return [{key: getattr(product, key) for key in kept} for product in found]
