"""Make, on the controller, the private CA of an inventory and a certificate for a host."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

CA_DAYS = 3650
RENEW_BEFORE_S = 30 * 24 * 3600


def extensions(names: Sequence[str], addresses: Sequence[str]) -> str:
    """Return the openssl extension section of a host's certificate: its names, its addresses, server and client use."""
    alternatives = [f"DNS:{name}" for name in names] + [f"IP:{address}" for address in addresses]
    return (
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth,clientAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        f"subjectAltName={','.join(alternatives)}\n"
    )


def _openssl(*arguments: str) -> None:
    if shutil.which("openssl") is None:
        raise AnsibleActionFail("the controller has no program 'openssl'")
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AnsibleActionFail(f"openssl {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}")


def _current(certificate: Path) -> bool:
    done = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", "-checkend", str(RENEW_BEFORE_S)],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _new_key(path: Path) -> None:
    # genpkey writes PKCS#8, which ZooKeeper insists on.
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path))


def make_ca(directory: Path, name: str) -> bool:
    """Make ca.key and ca.pem in `directory` where they are missing; return whether they were."""
    key, certificate = directory / "ca.key", directory / "ca.pem"
    if key.exists() and certificate.exists():
        return False
    with tempfile.TemporaryDirectory(dir=directory) as work:
        _new_key(Path(work) / "key")
        _openssl(
            "req", "-x509", "-new", "-sha256", "-days", str(CA_DAYS), "-key", f"{work}/key", "-out", f"{work}/pem",
            "-subj", f"/O={name}/CN={name} CA",
            "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        (Path(work) / "key").replace(key)
        (Path(work) / "pem").replace(certificate)
    return True


def make_host(directory: Path, organisation: str, host: str, wanted: dict[str, Any]) -> bool:
    """Make HOST.bundle.pem (PKCS#8 key, then certificate) unless there is one for `wanted`; return whether."""
    bundle, note = directory / f"{host}.bundle.pem", directory / f"{host}.json"
    wanted = {**wanted, "ca": (directory / "ca.pem").read_text()}
    try:
        if json.loads(note.read_text()) == wanted and _current(bundle):
            return False
    except (OSError, ValueError):
        pass  # none yet, or cut off while it was written: make it
    with tempfile.TemporaryDirectory(dir=directory) as work:
        (Path(work) / "ext").write_text(extensions(wanted["names"], wanted["addresses"]))
        _new_key(Path(work) / "key")
        _openssl("req", "-new", "-key", f"{work}/key", "-subj", f"/O={organisation}/CN={host}", "-out", f"{work}/csr")
        _openssl(
            "x509", "-req", "-sha256", "-in", f"{work}/csr", "-out", f"{work}/pem", "-extfile", f"{work}/ext",
            "-CA", str(directory / "ca.pem"), "-CAkey", str(directory / "ca.key"),
            "-set_serial", f"0x{os.urandom(16).hex()}", "-days", str(wanted["days"]),
        )  # fmt: skip
        made = Path(work) / "bundle"
        made.touch(mode=0o600)
        made.write_text((Path(work) / "key").read_text() + (Path(work) / "pem").read_text())
        made.replace(bundle)
    note.write_text(json.dumps(wanted))
    return True


class ActionModule(ActionBase):
    """See plugins/modules/host_certificate.py for the documentation of the arguments."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(
            argument_spec={
                "directory": {"type": "path", "required": True},
                "organisation": {"type": "str", "required": True},
                "host": {"type": "str", "required": True},
                "names": {"type": "list", "elements": "str", "default": []},
                "addresses": {"type": "list", "elements": "str", "default": []},
                "days": {"type": "int", "default": 825},
            }
        )
        directory, host, organisation = Path(str(args["directory"])), str(args["host"]), str(args["organisation"])
        wanted = json.loads(json.dumps({key: args[key] for key in ("names", "addresses", "days")}))
        previous = os.umask(0o077)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o700)
            with (directory / "ca.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                made = make_ca(directory, organisation)
            made = make_host(directory, organisation, host, wanted) or made
        finally:
            os.umask(previous)
        return {
            "changed": False,
            "made": made,
            "ca": str(directory / "ca.pem"),
            "bundle": str(directory / f"{host}.bundle.pem"),
        }
