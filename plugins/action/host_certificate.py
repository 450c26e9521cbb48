"""Make, on the controller, the private CA of an inventory and a certificate for a host."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.brokerdrill.ha.plugins.plugin_utils import rotation
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import ControllerAction
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.check_mode import stand_ins

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


def make_ca(directory: Path, name: str, file: str = "ca", common_name: str = "") -> bool:
    """Make FILE.key and FILE.pem in `directory` where they are missing; return whether they were. The subject's CN is
    `common_name`, by default made of the organisation `name`."""
    key, certificate = directory / f"{file}.key", directory / f"{file}.pem"
    if key.exists() and certificate.exists():
        return False
    with tempfile.TemporaryDirectory(dir=directory) as work:
        _new_key(Path(work) / "key")
        _openssl(
            "req", "-x509", "-new", "-sha256", "-days", str(CA_DAYS), "-key", f"{work}/key", "-out", f"{work}/pem",
            "-subj", f"/O={name}/CN={common_name or f'{name} CA'}",
            "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        (Path(work) / "key").replace(key)
        (Path(work) / "pem").replace(certificate)
    return True


def is_made(directory: Path, host: str, wanted: dict[str, Any], ca: Path) -> bool:
    """Return whether there is a HOST.bundle.pem of that CA for `wanted` which lasts."""
    try:
        noted = json.loads((directory / f"{host}.json").read_text())
        return noted == {**wanted, "ca": ca.read_text()} and _current(directory / f"{host}.bundle.pem")
    except (OSError, ValueError):
        return False  # none yet, or cut off while it was written


def make_host(directory: Path, organisation: str, host: str, wanted: dict[str, Any], ca: Path | None = None) -> bool:
    """Make HOST.bundle.pem (PKCS#8 key, then certificate of the CA `ca`, whose key is beside it; without it the
    directory's) unless there is one for `wanted`; return whether."""
    ca = ca or directory / "ca.pem"
    bundle, note = directory / f"{host}.bundle.pem", directory / f"{host}.json"
    if is_made(directory, host, wanted, ca):
        return False
    wanted = {**wanted, "ca": ca.read_text()}
    with tempfile.TemporaryDirectory(dir=directory) as work:
        (Path(work) / "ext").write_text(extensions(wanted["names"], wanted["addresses"]))
        _new_key(Path(work) / "key")
        _openssl("req", "-new", "-key", f"{work}/key", "-subj", f"/O={organisation}/CN={host}", "-out", f"{work}/csr")
        _openssl(
            "x509", "-req", "-sha256", "-in", f"{work}/csr", "-out", f"{work}/pem", "-extfile", f"{work}/ext",
            "-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")),
            "-set_serial", f"0x{os.urandom(16).hex()}", "-days", str(wanted["days"]),
        )  # fmt: skip
        made = Path(work) / "bundle"
        made.touch(mode=0o600)
        made.write_text((Path(work) / "key").read_text() + (Path(work) / "pem").read_text())
        made.replace(bundle)
    note.write_text(json.dumps(wanted))
    return True


class ActionModule(ControllerAction):
    """See plugins/modules/host_certificate.py for the documentation of the arguments."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {
        "directory": {"type": "path", "required": True},
        "organisation": {"type": "str", "required": True},
        "host": {"type": "str", "required": True},
        "names": {"type": "list", "elements": "str", "default": []},
        "addresses": {"type": "list", "elements": "str", "default": []},
        "days": {"type": "int", "default": 825},
    }

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        directory, host, organisation = Path(args["directory"]), args["host"], args["organisation"]
        wanted: dict[str, Any] = {key: args[key] for key in ("names", "addresses", "days")}
        previous = os.umask(0o077)
        try:
            # A rotation has all certificates made anew.
            if (rotated := rotation.read(directory)) and rotated.certificates:
                wanted["rotation"] = rotated.certificates
            of_ca, of_host = self._places(directory, host, wanted)
            made = False
            # In check mode a CA that is there is only read.
            if of_ca != directory or not self._task.check_mode:
                of_ca.mkdir(parents=True, exist_ok=True)
                of_ca.chmod(0o700)
                with (of_ca / "ca.lock").open("a") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    made = make_ca(of_ca, organisation)
            made = make_host(of_host, organisation, host, wanted, of_ca / "ca.pem") or made
        finally:
            os.umask(previous)
        # While the CA is being rotated hosts trust two.
        trusted = of_ca / rotation.TRUSTED
        return {
            "changed": False,
            "made": made,
            "ca": str(trusted if trusted.exists() else of_ca / "ca.pem"),
            "bundle": str(of_host / f"{host}.bundle.pem"),
        }

    def _places(self, directory: Path, host: str, wanted: dict[str, Any]) -> tuple[Path, Path]:
        """Return where the CA is, or is made, and where the host's certificate: in check mode what is missing is made
        for the run alone."""
        if not self._task.check_mode:
            return directory, directory
        ca, key = directory / "ca.pem", directory / "ca.key"
        if not (ca.exists() and key.exists()):
            return stand_ins(directory), stand_ins(directory)
        return directory, directory if is_made(directory, host, wanted, ca) else stand_ins(directory)
