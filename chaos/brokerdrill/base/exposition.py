"""Metrics in Prometheus' text format, and the file of them that its node exporter reads (textfile collector)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from brokerdrill.base.atomic import replacing

# No secret is in it, and the exporter is another user.
MODE = 0o644


def metric(name: str, what: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    """Return the lines of the gauge `name`: its help, its type, and each sample's labels with its value, which is told
    in whole numbers."""
    lines = [f"# HELP {name} {what}.", f"# TYPE {name} gauge"]
    for labels, value in samples:
        told = ",".join(f'{label}="{_escaped(of)}"' for label, of in labels.items())
        lines.append(f"{name}{{{told}}} {value:.0f}")
    return lines


def write(path: Path, lines: Iterable[str]) -> None:
    """Replace the file `path` by `lines`; everybody may read it. Raises InfrastructureError."""
    with replacing(path) as file:
        os.fchmod(file.fileno(), MODE)
        file.write("".join(f"{line}\n" for line in lines).encode())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
