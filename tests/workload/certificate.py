"""A certificate for brokers on loopback."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of its own for 127.0.0.1; return its file, and one with its key too."""
    certificate, key, bundle = (folder / f"router.{suffix}" for suffix in ("pem", "key", "bundle.pem"))
    name = ["-subj", "/CN=router", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    bundle.write_text(key.read_text() + certificate.read_text())
    return certificate, bundle
