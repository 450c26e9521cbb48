#!/usr/bin/python
"""Unpack an archive into a directory of its own, whole or not at all."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unpacked
short_description: Push an archive from the controller and unpack it, once
description:
  - Unpacks a tar archive of the controller into a directory that holds nothing else. A marker with the archive's
    checksum is written last and the directory is renamed into place, so that an interrupted run leaves no half of it.
  - A tar archive (the host needs C(tar), and C(gzip) for compressed ones) or a zip archive.
options:
  src: {description: The archive on the controller., type: path}
  sha256: {description: Its checksum; another one there means unpack again., type: str, required: true}
  dest: {description: The directory to make., type: path, required: true}
  strip: {description: Leading path components to drop., type: int, default: 0}
  include: {description: Wildcards of the members to unpack; all when empty., type: list, elements: str, default: []}
  archive: {description: Where the action plugin put the archive on the host; not for playbooks., type: path}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Unpack the broker
  brokerdrill.ha.unpacked:
    src: /var/cache/brokerdrill/apache-artemis-2.56.0-bin.tar.gz
    sha256: df469079b6388c8c6276197388a0f5ee0d64d0ca42d7f0e2ca5e392e21b955de
    dest: /opt/artemis/2.56.0
    strip: 1
"""

RETURN = r"""
dest: {description: The directory., type: str, returned: always}
"""

import fnmatch
import json
import shutil
import tempfile
import zipfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

MARKER = ".brokerdrill-archive"


def is_zip(archive: Path) -> bool:
    """Whether the archive begins as a zip archive does: a tar archive may end with one that it holds."""
    with archive.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def unzip(archive: Path, into: Path, strip: int, include: list[str]) -> None:
    """Unpack the files of a zip archive whose names match a pattern of `include` (all, where it is empty), without the
    first `strip` parts of their names. Raises zipfile.BadZipFile, OSError."""
    with zipfile.ZipFile(archive) as content:
        for item in content.infolist():
            parts = item.filename.split("/")[strip:]
            chosen = not include or any(fnmatch.fnmatch(item.filename, pattern) for pattern in include)
            if item.is_dir() or not parts or not chosen:
                continue
            item.filename = "/".join(parts)
            Path(content.extract(item, into)).chmod(0o755 if item.external_attr >> 16 & 0o111 else 0o644)


def untar(module: AnsibleModule, archive: Path, into: Path, dest: Path) -> None:
    """Unpack a tar archive by the host's tar, as the module's parameters say; end the module where that fails."""
    command = ["tar", "-xf", str(archive), "-C", str(into), "--no-same-owner"]
    command.append(f"--strip-components={module.params['strip']}")
    with archive.open("rb") as stream:
        if stream.read(2) == b"\x1f\x8b":
            command.append("-z")
    if module.params["include"]:
        command += ["--wildcards", *module.params["include"]]
    status, _out, err = module.run_command(command)
    if status != 0:
        module.fail_json(msg=f"{archive} cannot be unpacked into {dest}: {err.strip() or status}")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "src": {"type": "path"},
            "sha256": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "strip": {"type": "int", "default": 0},
            "include": {"type": "list", "elements": "str", "default": []},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    dest = Path(params["dest"])
    wanted = json.dumps([params["sha256"], params["strip"], params["include"]])
    try:
        there = (dest / MARKER).read_text() == wanted
    except OSError:
        there = False
    if there or module.check_mode or not params["archive"]:
        module.exit_json(changed=not there, dest=str(dest))

    dest.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    work = Path(tempfile.mkdtemp(dir=dest.parent, prefix=f".{dest.name}-"))
    try:
        archive = Path(params["archive"])
        if is_zip(archive):
            unzip(archive, work, params["strip"], params["include"])
        else:
            untar(module, archive, work, dest)
        (work / MARKER).write_text(wanted)
        work.chmod(0o755)
        if dest.exists():
            old = Path(tempfile.mkdtemp(dir=dest.parent, prefix=f".{dest.name}-old-"))
            dest.rename(old / "old")
            work.rename(dest)
            shutil.rmtree(old)
        else:
            work.rename(dest)
    except zipfile.BadZipFile as error:
        module.fail_json(msg=f"{params['archive']} cannot be unpacked into {dest}: {error}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    module.exit_json(changed=True, dest=str(dest))


if __name__ == "__main__":
    main()
