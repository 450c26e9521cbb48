#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: memory
short_description: Hold the heaps of a host's JVMs against its memory
description:
  - Asks the host for its memory, and fails with one sentence where the JVMs of the products that the inventory has on
    this machine may together take more. Hosts of the inventory that are reached at the same address are one machine.
    A host without a JVM is not asked. Changes nothing.
options: {}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Preflight of the host's memory
  brokerdrill.ha.memory:
"""

RETURN = r"""
heaps_mib: {description: "The heaps in MiB, by variable and host.", type: dict, returned: always}
has_mib: {description: "The host's memory, or what its container may take.", type: float, returned: with a JVM}
"""
