#!/usr/bin/python
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: cached
short_description: Keep an archive once in the controller's cache
description:
  - Makes an archive from pinned sources with the ordinary clients of their registries, or from a URL, and keeps it.
  - Safe when the tasks of several hosts ask for it at the same time. Runs on the controller and needs no connection.
options:
  name: {description: File name of the archive., type: str, required: true}
  directory: {description: The cache., type: path, required: true}
  maven:
    description:
      - Maven coordinates C(group:artifact:version[:type[:classifier]]), each with its C(sha256), fetched by C(mvn)
        without their dependencies.
      - One is kept as it is; several are packed into one tar file.
    type: list
    elements: dict
  url: {description: An C(url) and its C(sha256)., type: dict}
  go:
    description: >-
      A Go C(module), C(version), its C(sum) as in go.sum, C(arch), C(ldflags), and C(programs), a map from program name
      to package path.
    type: dict
  pip:
    description: >-
      The text of a hashed C(requirements) lock, the C(python_version) and C(platforms) of the host. With C(project),
      the folder of a Python project on the controller, its own wheel is built too, with C(build_variable) in the
      build's environment. That says C(compiled), or C(pure) where the host's Python or C(machine) is not the
      controller's and so its compiled parts cannot be made. With C(wheel) that is taken instead - a file of the
      controller's, a URL, or C(NAME==VERSION) in the package index; C(wheel_sha256) is its checksum, which a URL needs.
    type: dict
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Keep the broker's archive
  brokerdrill.ha.cached:
    name: apache-artemis-2.56.0-bin.tar.gz
    directory: /var/cache/brokerdrill
    maven:
      - coordinate: org.apache.artemis:apache-artemis:2.56.0:tar.gz:bin
        sha256: df469079b6388c8c6276197388a0f5ee0d64d0ca42d7f0e2ca5e392e21b955de
"""

RETURN = r"""
path: {description: The archive on the controller., type: str, returned: always}
sha256: {description: Its checksum., type: str, returned: always}
fetched: {description: Whether it was made now., type: bool, returned: when it was made}
"""
