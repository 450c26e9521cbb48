"""The colours of a report, once, for the style sheet and for the pictures, in a light and a dark version.

Series colours are from the Okabe-Ito set, which people with any colour blindness can tell apart, darkened or lightened
until they stand out (contrast of 3:1 and more) from their ground. No meaning is carried by colour alone: bars differ in
height and hatching too, lines in dashes, verdicts in sign and word.
"""

from __future__ import annotations

from typing import NamedTuple


class Shade(NamedTuple):
    """One colour on a light and on a dark ground."""

    light: str
    dark: str


PALETTE: dict[str, Shade] = {
    "page": Shade("#f5f6f8", "#0f1216"),
    "surface": Shade("#ffffff", "#171b21"),
    "raised": Shade("#f0f2f5", "#20262e"),
    "line": Shade("#dfe3e8", "#2d343d"),
    "ink": Shade("#1a1f26", "#e8ebef"),
    "muted": Shade("#56606c", "#9aa5b1"),
    "link": Shade("#005a94", "#6fbaf0"),
    "good": Shade("#00734f", "#3cc796"),
    "good-ground": Shade("#e2f4ec", "#12312a"),
    "bad": Shade("#b33c00", "#ff8a4f"),
    "bad-ground": Shade("#fdebe1", "#3a2015"),
    "doubt": Shade("#7a5a00", "#e6b94a"),
    "doubt-ground": Shade("#fbf2d8", "#332a12"),
    "sends": Shade("#0072b2", "#4aa8e0"),
    "deliveries": Shade("#c06a00", "#f0a83c"),
    "fault": Shade("#a8477f", "#d98bb9"),
    "outage": Shade("#d55e00", "#f07f33"),
    "active": Shade("#0072b2", "#3f9fda"),
    "passive": Shade("#8cc9ee", "#2b5876"),
    "syncing": Shade("#8cc9ee", "#2b5876"),
    "starting": Shade("#e69f00", "#e0a52c"),
    "failed": Shade("#d55e00", "#e87430"),
    "down": Shade("#b9c0c8", "#4a525c"),
    "on-active": Shade("#ffffff", "#08121a"),
    "on-pale": Shade("#12222e", "#e8f3fb"),
    "detection": Shade("#7d8794", "#8b95a1"),
    "activation": Shade("#c06a00", "#f0a83c"),
    "first-send": Shade("#0072b2", "#4aa8e0"),
    "first-delivery": Shade("#8cc9ee", "#2f6488"),
    "class-good": Shade("#0072b2", "#4aa8e0"),
    "class-neutral": Shade("#7d8794", "#8b95a1"),
    "class-doubt": Shade("#e69f00", "#e0a52c"),
    "class-bad": Shade("#d55e00", "#f07f33"),
}


def variables(dark: bool) -> str:
    """Return the palette as CSS custom properties: `--ink:#1a1f26;…`."""
    return "".join(f"--{name}:{shade.dark if dark else shade.light};" for name, shade in PALETTE.items())
