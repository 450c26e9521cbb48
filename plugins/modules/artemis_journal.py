#!/usr/bin/python
"""What a stopped broker's data directory says of its age."""

from __future__ import annotations

DOCUMENTATION = r"""
module: artemis_journal
short_description: Read how new the data of a stopped Artemis broker is
description:
  - Reads the node's id and its activation sequence (which a lock manager counts up with every activation), the highest
    number of a journal file that holds records, the time of the last write, and the journals that were moved aside
    (C(oldreplica.N)) because a newer copy replaced them. Changes nothing, and needs no broker that runs.
options:
  store: {description: The directory with journal and bindings on the host., type: path, required: true}
author: ["Brokerdrill developers (@brokerdrill)"]
"""

EXAMPLES = r"""
- name: Read the journal
  brokerdrill.ha.artemis_journal:
    store: /var/lib/artemis/artemis1/data
"""

RETURN = r"""
there: {description: Whether there is a journal at all., type: bool, returned: always}
node_id: {description: The broker's identity in hex; empty without one., type: str, returned: always}
activation_sequence: {description: Null where no lock manager counts., type: int, returned: always}
journal_file: {description: Highest number of a journal file with records., type: int, returned: always}
written: {description: "Time of the last write to the journal, in seconds since 1970.", type: float, returned: always}
replaced: {description: Directories of journals that were moved aside., type: list, elements: str, returned: always}
"""

import struct
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# JournalImpl.writeHeader: format (int), user version (int), the file's number (long), big endian; records follow, each
# beginning with its kind (JournalImpl.ADD_RECORD = 11 and on). A file made in advance has none yet.
HEADER = struct.Struct(">iiq")
RECORD_KINDS = range(11, 32)
# FileBasedNodeManager: server.lock holds three state bytes and the node's id; the sequence is a long in its own file.
ID_AT = 3
ID_LENGTH = 16


def journal_file(path: Path) -> int | None:
    """Return the number of the journal file, None where nothing was ever recorded in it."""
    with path.open("rb") as stream:
        head = stream.read(HEADER.size + 1)
    if len(head) <= HEADER.size or head[-1] not in RECORD_KINDS:
        return None
    return int(HEADER.unpack(head[:-1])[2])


def read(store: Path) -> dict[str, Any]:
    """Return what `store` says; see RETURN."""
    journal = store / "journal"
    files = sorted(journal.glob("*.amq"))
    numbers = [number for path in files if (number := journal_file(path)) is not None]
    lock, sequence = journal / "server.lock", journal / "server.activation.sequence"
    identity = lock.read_bytes()[ID_AT : ID_AT + ID_LENGTH] if lock.is_file() else b""
    counted = sequence.read_bytes() if sequence.is_file() else b""
    return {
        "there": bool(files),
        "node_id": identity.hex() if any(identity) else "",
        "activation_sequence": struct.unpack(">q", counted[:8])[0] if len(counted) >= 8 else None,
        "journal_file": max(numbers, default=0),
        "written": max((path.stat().st_mtime for path in files), default=0.0),
        "replaced": sorted(path.name for path in store.rglob("oldreplica*") if path.is_dir()),
    }


def main() -> None:
    module = AnsibleModule(argument_spec={"store": {"type": "path", "required": True}}, supports_check_mode=True)
    try:
        module.exit_json(changed=False, **read(Path(module.params["store"])))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
