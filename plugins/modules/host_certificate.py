#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: host_certificate
short_description: Make the private CA of an inventory, and a host's certificate, on the controller
description:
  - EC P-256 keys by the C(openssl) program. A host's certificate is for server and client use, with its names and
    addresses. It is made again 30 days before it ends, or when its names, its addresses or the CA change.
  - In check mode what is missing is made for the run alone, and the directory stays as it is.
  - Runs on the controller only. Keys are mode 0600 in a directory of mode 0700.
options:
  directory: {description: Where the CA and the bundles are kept., type: path, required: true}
  organisation: {description: The O of all subjects., type: str, required: true}
  host: {description: The CN., type: str, required: true}
  names: {description: DNS names., type: list, elements: str, default: []}
  addresses: {description: IP addresses., type: list, elements: str, default: []}
  days: {description: How long the host's certificate lasts., type: int, default: 825}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Make the host's certificate
  brokerdrill.ha.host_certificate:
    directory: /srv/secrets/production
    organisation: production
    host: artemis1
    names: [artemis1]
    addresses: [192.0.2.21]
"""

RETURN = r"""
ca: {description: The CA's certificate on the controller., type: str, returned: always}
bundle: {description: PKCS#8 key and certificate of the host on the controller., type: str, returned: always}
made: {description: Whether anything was made now., type: bool, returned: always}
"""
