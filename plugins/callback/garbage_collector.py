"""Has Ansible's processes look for garbage seldom."""

from __future__ import annotations

DOCUMENTATION = """
name: garbage_collector
type: aggregate
short_description: Has Ansible's processes look for garbage seldom
description:
  - Python looks through all of Ansible's objects again and again for cycles that nobody uses any more. There are few,
    and a process that does one task on one host ends before they matter.
  - Without it a sixth of the processor time of the roles' plays in the tests went there.
requirements:
  - It is enabled by C(callbacks_enabled).
"""

import gc

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """It is there before the first task; each task's process begins as a copy."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "brokerdrill.ha.garbage_collector"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
