#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: inventory_secrets
short_description: Refuse the CA and passwords of another inventory
description:
  - Notes in the directory of an inventory's secrets whose they are, and fails where the note names another inventory.
    So a copied inventory, or one of the same name, never takes over the CA and the passwords of the original, the
    bench's among them.
  - Where the note is the path of an inventory that is not there any more, the inventory has moved, and the note is
    written anew.
  - A directory that has a CA and no note is refused, too.
  - Runs on the controller only. The directory is made, mode 0700, but not in check mode.
options:
  directory: {description: Where the inventory's CA and passwords are kept., type: path, required: true}
  inventory: {description: Whose they are - the inventory's path or any lasting name., type: str, required: true}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Refuse the secrets of another inventory
  brokerdrill.ha.inventory_secrets:
    directory: /srv/secrets/production
    inventory: /srv/inventories/production
"""

RETURN = r"""
inventory: {description: Whose the secrets are., type: str, returned: always}
"""
