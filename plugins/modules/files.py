#!/usr/bin/python
"""Put directories and files in place, all in one call."""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import stat
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: files
short_description: Put all files of a service in place with one call to the host
description:
  - Renders templates on the controller and writes directories and files, each atomically, in one call.
    A service has a dozen small files; a call for each would cost most of a deployment's time.
  - A file may name a schema inside an archive of the controller. It is checked before anything is sent.
  - Shows differences with C(--diff), except of files that are O(files[].secret).
options:
  directories:
    description: Made in this order.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: The directory., type: path, required: true}
      owner: {description: Its owner., type: str, default: root}
      group: {description: Its group., type: str, default: root}
      mode: {description: Its mode in octal., type: str, default: "0755"}
  files:
    description: Written in this order. One of template, src and content says what.
    type: list
    elements: dict
    default: []
    suboptions:
      dest: {description: The file., type: path, required: true}
      template: {description: A Jinja2 template in the role's C(templates)., type: str}
      src: {description: A text file in the role's C(files) or an absolute path on the controller., type: str}
      content: {description: The text itself., type: str}
      owner: {description: Its owner., type: str, default: root}
      group: {description: Its group., type: str, default: root}
      mode: {description: Its mode in octal., type: str, default: "0644"}
      secret: {description: Never show a difference., type: bool, default: false}
      schema:
        description: >-
          The C(archive) on the controller, the C(member) of it that is an XML schema, and the C(element) below the root
          that it describes.
        type: dict
  payload: {description: What the action plugin made of the above; not for playbooks., type: str}
author: ["Brokerdrill developers"]
"""

EXAMPLES = r"""
- name: Configure the service
  brokerdrill.ha.files:
    directories:
      - {path: /etc/example, mode: "0750"}
    files:
      - {dest: /etc/example/example.conf, template: example.conf.j2}
      - {dest: /etc/example/secret, content: "{{ example_secret }}", mode: "0600", secret: true}
"""

RETURN = r"""
paths: {description: What was changed., type: list, elements: str, returned: always}
"""


def identity(module: AnsibleModule, owner: str, group: str) -> tuple[int, int] | None:
    """Return (uid, gid), or None in check mode where an earlier task would have made them."""
    try:
        return pwd.getpwnam(owner).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError as error:
        if module.check_mode:
            return None
        return module.fail_json(msg=f"no such user or group on the host: {error}")


def attributes_differ(path: str, ids: tuple[int, int] | None, mode: int) -> bool:
    """Whether owner, group or mode of what is at `path` is not as asked for."""
    state = Path(path).stat()
    return stat.S_IMODE(state.st_mode) != mode or (ids is not None and (state.st_uid, state.st_gid) != ids)


def directory(module: AnsibleModule, entry: dict[str, Any]) -> bool:
    """Make the directory as asked for; return whether anything was to change."""
    path, mode = entry["path"], int(entry["mode"], 8)
    ids = identity(module, entry["owner"], entry["group"])
    there = Path(path).is_dir()
    if not there and (Path(path).exists() or Path(path).is_symlink()):
        module.fail_json(msg=f"{path} is there and no directory")
    if there and not attributes_differ(path, ids, mode):
        return False
    if not module.check_mode and ids is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
        os.chown(path, *ids)
        Path(path).chmod(mode)
    return True


def file(module: AnsibleModule, entry: dict[str, Any]) -> dict[str, str] | None:
    """Write the file as asked for; return its difference, or None where nothing was to change."""
    path, mode, new = entry["dest"], int(entry["mode"], 8), entry["content"].encode()
    ids = identity(module, entry["owner"], entry["group"])
    try:
        old = Path(path).read_bytes()
    except FileNotFoundError:
        old = None
    except (IsADirectoryError, NotADirectoryError):
        module.fail_json(msg=f"{path} cannot be a file: a directory is in its way")
    if old == new and not attributes_differ(path, ids, mode):
        return None
    if not module.check_mode and ids is not None:
        if old == new:
            os.chown(path, *ids)
            Path(path).chmod(mode)
        else:
            handle, work = tempfile.mkstemp(dir=Path(path).parent, prefix=f".{Path(path).name}.")
            try:
                with os.fdopen(handle, "wb") as stream:
                    os.fchown(stream.fileno(), *ids)
                    os.fchmod(stream.fileno(), mode)
                    stream.write(new)
                    stream.flush()
                    os.fsync(stream.fileno())
                Path(work).replace(path)
            except BaseException:
                Path(work).unlink()
                raise
    hidden = entry["secret"] or old == new
    return {
        "before_header": path,
        "after_header": path,
        "before": "" if hidden else (old or b"").decode(errors="replace"),
        "after": "" if hidden else entry["content"],
    }


COMMON: dict[str, Any] = {"owner": {"type": "str", "default": "root"}, "group": {"type": "str", "default": "root"}}
DIRECTORY = {"path": {"type": "path", "required": True}, **COMMON, "mode": {"type": "str", "default": "0755"}}
FILE = {
    "dest": {"type": "path", "required": True},
    "template": {"type": "str"},
    "src": {"type": "str"},
    "content": {"type": "str"},
    **COMMON,
    "mode": {"type": "str", "default": "0644"},
    "secret": {"type": "bool", "default": False, "no_log": False},
    "schema": {"type": "dict"},
}


def defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the default values that an argument specification has."""
    return {name: option["default"] for name, option in options.items() if "default" in option}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": DIRECTORY},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
            "payload": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    work = json.loads(base64.b64decode(module.params["payload"] or "e30="))
    paths, diff = [], []
    try:
        for entry in work.get("directories", []):
            if directory(module, defaults(DIRECTORY) | entry):
                paths.append(entry["path"])
        for entry in work.get("files", []):
            difference = file(module, defaults(FILE) | entry)
            if difference:
                paths.append(entry["dest"])
                diff.append(difference)
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}", paths=paths)
    module.exit_json(changed=bool(paths), paths=paths, diff=diff if module._diff else [])


if __name__ == "__main__":
    main()
