#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: controller
short_description: Say what the controller lacks
description:
  - Fails where the controller has not the programs and Python modules that a deployment will call on it. What it would
    make with them and has in its cache already needs none.
  - Runs on the controller only, and changes nothing.
options:
  directory: {description: Where M(brokerdrill.ha.cached) keeps the archives., type: path, required: true}
  archives:
    description:
      - The archives, each with its C(name) and its C(source), a mapping with one of the sources that
        M(brokerdrill.ha.cached) takes. A name with C(*) is there where any archive fits.
    type: list
    elements: dict
    default: []
  programs: {description: "Other programs, each with what it is for.", type: dict, default: {}}
  modules: {description: "Modules of Ansible's own Python, each with what it is for.", type: dict, default: {}}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Refuse a controller that cannot make certificates
  brokerdrill.ha.controller:
    directory: /srv/cache/archives
    programs: {openssl: certificates}
"""

RETURN = r"""
"""
