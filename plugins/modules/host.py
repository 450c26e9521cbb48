#!/usr/bin/python
"""What a service needs of its host, in one call: groups, a user, directories, files, a unit."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host
short_description: Bring a service's part of a host about in one call
description:
  - Makes groups and a system user, renders templates on the controller, writes directories and files, each atomically,
    and enables and starts a unit; and says which Java and Python the host has. All of it is optional.
  - A service needs a dozen small things. A call for each, each by a module of its own, would cost most of a
    deployment's time.
  - A file may name a schema inside an archive of the controller. It is checked before anything is sent.
  - Shows differences with C(--diff), except of files that are O(files[].secret).
options:
  groups: {description: System groups to make., type: list, elements: str, default: []}
  user:
    description: A system user without a login, with a group of its own.
    type: dict
    suboptions:
      name: {description: Its name., type: str, required: true}
      home: {description: Its home; not created., type: path, required: true}
      groups: {description: Groups that it must be in as well., type: list, elements: str, default: []}
      uid: {description: "Its number, and its group's, where several hosts must agree.", type: int}
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
      validate:
        description: A command of the host that must take the new file, C(%s), before that is put in place.
        type: str
        default: ""
      schema:
        description: >-
          The C(archive) on the controller, the C(member) of it that is an XML schema (or several C(members), each with
          the C(jar) in the archive that holds it), and the C(element) below the root that it describes.
        type: dict
  unit: {description: A systemd unit to enable and start., type: str}
  payload: {description: What the action plugin made of the above; not for playbooks., type: str}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Configure the service
  brokerdrill.ha.host:
    user: {name: example, home: /var/lib/example}
    directories:
      - {path: /etc/example, mode: "0750"}
    files:
      - {dest: /etc/example/example.conf, template: example.conf.j2}
      - {dest: /etc/example/secret, content: "{{ example_secret }}", mode: "0600", secret: true}
    unit: example.service
"""

RETURN = r"""
paths: {description: Directories and files that were changed., type: list, elements: str, returned: always}
made: {description: "Groups, users and unit states that were changed.", type: list, elements: str, returned: always}
uid: {description: The user's number; null in check mode before it is there., type: int, returned: always}
java: {description: C(version) and C(home) of the host's Java; null without one., type: dict, returned: always}
python: {description: Version of the host's Python., type: str, returned: always}
machine: {description: The host's architecture., type: str, returned: always}
"""

import base64
import grp
import json
import os
import platform
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def java() -> dict[str, Any] | None:
    """Return {"version", "home"} of the Java on the PATH, or None. A release file beside it spares starting it."""
    program = shutil.which("java")
    if program is None:
        return None
    home = Path(program).resolve().parent.parent
    try:
        words = (home / "release").read_text()
        found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', words)
    except OSError:
        command = [program, "-XshowSettings:properties", "-version"]
        words = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        found = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", words)
    return {"version": int(found[1]), "home": str(home)} if found else None


def run(module: AnsibleModule, command: list[str]) -> None:
    """Run `command`. Fails the module in its words where that fails."""
    status, out, err = module.run_command(command)
    if status != 0:
        module.fail_json(msg=f"{' '.join(command)}: {(err or out).strip()}")


def group(module: AnsibleModule, name: str) -> str | None:
    """Make the system group; return what was to change."""
    try:
        grp.getgrnam(name)
        return None
    except KeyError:
        if not module.check_mode:
            run(module, ["groupadd", "--system", name])
        return f"group {name}"


def user(module: AnsibleModule, entry: dict[str, Any]) -> str | None:
    """Make the system user, or put it into groups that it is not in; return what was to change."""
    name = entry["name"]
    wanted = entry.get("groups") or []
    try:
        there = pwd.getpwnam(name).pw_uid
        if entry.get("uid") not in (None, there):
            module.fail_json(msg=f"user {name} has the number {there} here, not {entry['uid']}")
        missing = [item for item in wanted if name not in members(item)]
        if not missing:
            return None
        command = ["usermod", "--append", "--groups", ",".join(missing), name]
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", entry["home"]]
        command += ["--uid", str(entry["uid"])] if entry.get("uid") is not None else []
        command += ["--shell", "/usr/sbin/nologin", *(["--groups", ",".join(wanted)] if wanted else []), name]
    if not module.check_mode:
        run(module, command)
    return f"user {name}"


def members(name: str) -> list[str]:
    """Return the users that the group lists; none where there is no such group."""
    try:
        return grp.getgrnam(name).gr_mem
    except KeyError:
        return []


def unit(module: AnsibleModule, name: str) -> list[str]:
    """Enable and start the unit; return what was to change."""
    properties = ["-p", "LoadState", "-p", "UnitFileState", "-p", "ActiveState", "-p", "NeedDaemonReload"]
    _status, out, _err = module.run_command(["systemctl", "show", name, *properties])
    state = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    if module.check_mode and state.get("LoadState") != "loaded":
        return [f"{name} enabled", f"{name} started"]
    changes = []
    if state.get("LoadState") != "loaded" or state.get("NeedDaemonReload") == "yes":
        if not module.check_mode:
            run(module, ["systemctl", "daemon-reload"])
        changes.append("systemd reloaded")
    if state.get("UnitFileState") != "enabled":
        if not module.check_mode:
            run(module, ["systemctl", "--quiet", "enable", name])
        changes.append(f"{name} enabled")
    if state.get("ActiveState") not in ("active", "activating", "reloading"):
        if not module.check_mode:
            run(module, ["systemctl", "start", name])
        changes.append(f"{name} started")
    return changes


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
                if entry["validate"]:
                    run(module, [part.replace("%s", work) for part in shlex.split(entry["validate"])])
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
    "validate": {"type": "str", "default": ""},
    "schema": {"type": "dict"},
}


def defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Return the default values that an argument specification has."""
    return {name: option["default"] for name, option in options.items() if "default" in option}


USER = {
    "name": {"type": "str", "required": True},
    "home": {"type": "path", "required": True},
    "groups": {"type": "list", "elements": "str", "default": []},
    "uid": {"type": "int"},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "groups": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "dict", "options": USER},
            "directories": {"type": "list", "elements": "dict", "default": [], "options": DIRECTORY},
            "files": {"type": "list", "elements": "dict", "default": [], "options": FILE},
            "unit": {"type": "str"},
            "payload": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    work = json.loads(base64.b64decode(module.params["payload"] or "e30="))
    made = [change for name in work.get("groups", []) if (change := group(module, name))]
    if work.get("user") and (change := user(module, work["user"])):
        made.append(change)
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
    if work.get("unit"):
        made += unit(module, work["unit"])
    if made:
        diff.append({"prepared": "\n".join(made) + "\n"})
    try:
        uid = pwd.getpwnam(work["user"]["name"]).pw_uid if work.get("user") else None
    except KeyError:
        uid = None
    module.exit_json(
        changed=bool(paths or made),
        paths=paths,
        made=made,
        uid=uid,
        java=java(),
        python=".".join(platform.python_version_tuple()[:2]),
        machine=platform.machine(),
        diff=diff if module._diff else [],
    )


if __name__ == "__main__":
    main()
