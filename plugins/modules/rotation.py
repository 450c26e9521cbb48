#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: rotation
short_description: Take a step of a rotation of passwords, certificates and the CA, on the controller
description:
  - A rotation has a name and up to three steps. C(overlap) makes new passwords and keeps the old ones beside them, has
    the module M(brokerdrill.ha.host_certificate) make all certificates anew, and makes a new CA that hosts trust beside
    the old one. C(switch), only with a new CA, lets it sign. C(end) forgets what is old.
  - Only secrets that were made here are rotated; what the inventory gives (a vault) has no file.
  - A step that was cut off is done again without anything being made twice. The next step is refused until O(complete)
    has been said of the one before, and another rotation until this one has ended.
  - Runs on the controller only. In check mode it only says what would be refused.
options:
  directory: {description: Where the inventory's CA and passwords are kept., type: path, required: true}
  organisation: {description: The O of the subject of a new CA., type: str, required: true}
  name: {description: Any word; the same one again goes on with the same rotation., type: str, required: true}
  what:
    description: What becomes new.
    type: list
    elements: str
    choices: [passwords, cluster, certificates, ca]
    required: true
  step:
    description: How far to go.
    type: str
    choices: [overlap, switch, end]
    default: overlap
  passwords:
    description: Files of passwords of users, without their end C(.password).
    type: list
    elements: str
    default: []
  cluster:
    description: Those by which brokers know each other, of which no old one is kept.
    type: list
    elements: str
    default: []
  anew:
    description: >-
      At the step C(overlap): what is before, of this name or another, ends as this one begins, where it has ended or
      all hosts have its C(overlap) and it has no new CA.
    type: bool
    default: false
  complete: {description: All hosts have the step., type: bool, default: false}
  look: {description: Only refuse what cannot be., type: bool, default: false}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: New passwords and certificates, the old ones still accepted
  brokerdrill.ha.rotation:
    directory: /srv/secrets/production
    organisation: production
    name: spring
    what: [passwords, certificates]
    passwords: [artemis-admin, artemis-monitor]
"""

RETURN = r"""
begun: {description: Whether the rotation had begun before., type: bool, returned: always}
step: {description: The step at which it is., type: str, returned: always}
steps: {description: All of its steps., type: list, elements: str, returned: always}
complete: {description: Whether all hosts have that step., type: bool, returned: always}
"""
