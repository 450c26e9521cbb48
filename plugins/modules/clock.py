#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: clock
short_description: Ask a host's clock
description:
  - Says how far the host's clock is from the controller's, and what the measurement leaves open (half of the time that
    the answer took). The best of three looks counts. Changes nothing.
options: {}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Ask for the time
  brokerdrill.ha.clock:
  register: clock
"""

RETURN = r"""
offset_ms: {description: The host's clock less the controller's., type: float, returned: always}
uncertainty_ms: {description: By how much that may be wrong., type: float, returned: always}
"""
