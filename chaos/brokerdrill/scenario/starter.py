"""The file that `brokerdrill new` writes: a drill that runs as it is, and says where to change it."""

from __future__ import annotations

import json

from brokerdrill.scenario.drill import load_drill

_OWN = """\
title: {title}
description: What is broken, and what that is to show.
# needs: [standby]    # what a topology must have; `brokerdrill scenarios` explains the words
load: {{rate: 200}}
method:
  # `brokerdrill faults` lists what can be injected, with its parameters
  - {{type: action, name: kill-active, fault: kill, target: active, ttl: 60}}
  - {{type: probe, name: served-again, until: acknowledged, count: 100, timeout: 60}}
  - {{type: heal, name: started, of: kill-active}}
# Beside those of all drills: no_loss, no_duplicates, no_phantoms, no_dead_letters, stays_up
promises:
  - {{name: available, bound_ms: 30000}}
"""
_EXTENDING = """\
extends: {extends}
title: {title}
description: As {extends}, but for what this file sets.
# Single places: `brokerdrill schema` says what there is
set: {{load.rate: 400}}
"""


def starter(title: str, extends: str) -> str:
    """Return the YAML of a drill called `title`, which `extends` a shipped one or (empty) begins with the defaults.

    Raises UsageError, with the nearest name, where there is no such drill.
    """
    # JSON's way to write a text is one of YAML's: a file's name may have any character.
    quoted = json.dumps(title, ensure_ascii=False)
    if not extends:
        return _OWN.format(title=quoted)
    load_drill(extends)
    return _EXTENDING.format(title=quoted, extends=extends)
