"""Numbers, times and unknown values as a reader sees them: the same in the page, the terminal and JUnit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from brokerdrill.base.statistics import Interval

NOTHING = "–"
# C0 and C1 controls, surrogates and non-characters: not allowed in XML 1.0, and invisible or harmful elsewhere.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: object) -> str:
    """Return `text` without the characters that XML forbids or that would steer a terminal; each becomes U+FFFD."""
    return _CONTROLS.sub("\ufffd", str(text))


def number(value: float | None) -> str:
    """Return a count with thousands separators: `12,345`."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def milliseconds(value: float | None) -> str:
    """Return milliseconds with two significant decimals where they matter: `0.42 ms`, `3,912 ms`."""
    if value is None:
        return NOTHING
    size = abs(value)
    digits = 0 if size >= 100 or float(value).is_integer() else 1 if size >= 10 else 2
    return f"{value:,.{digits}f} ms"


def rate(value: float | None) -> str:
    """Return a number a second: `401 / s`, `4.2 / s`."""
    if value is None:
        return NOTHING
    return f"{value:,.{0 if value >= 100 else 1}f} / s"


def seconds(ns: float | None) -> str:
    """Return run time in nanoseconds as seconds: `12.345 s`."""
    return NOTHING if ns is None else f"{ns / 1e9:,.3f} s"


def span(ns: float | None) -> str:
    """Return a length of time in nanoseconds: `84 ms`, `4.21 s`, `2 min 05 s`."""
    if ns is None:
        return NOTHING
    if ns < 1e9:
        return milliseconds(ns / 1e6)
    if ns < 60e9:
        return f"{ns / 1e9:.2f} s"
    whole = round(ns / 1e9)
    return f"{whole // 60} min {whole % 60:02d} s"


def percent(share: float | None) -> str:
    """Return a share of 1 as a percentage: `13.9 %`, `0.042 %`, and `0 %` or `100 %` only where it is just that."""
    if share is None:
        return NOTHING
    if share in (0, 1):
        return f"{share * 100:.0f} %"
    if share >= 0.01:
        # 99.98 % of messages are not all of them.
        return f"{min(share * 100, 99.9):.1f} %"
    return f"{share * 100:.2g} %"


def label(name: str) -> str:
    """Return the name of a witness's field as a reader sees it: `first_ns` is `first`, its value says the unit."""
    return clean(name).removesuffix("_ns").removesuffix("_ms").replace("_", " ")


def value(name: str, item: Any) -> str:
    """Return one value of a witness as text; the ending of its name says its unit (`_ns`, `_ms`)."""
    if item is None:
        return NOTHING
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, (int, float)):
        if name.endswith("_ns"):
            return seconds(item)
        if name.endswith("_ms"):
            return milliseconds(item)
        return number(item)
    if isinstance(item, str):
        return clean(item)
    return clean(json.dumps(item, ensure_ascii=False))


def interval(value: Interval | None, text: Callable[[float], str]) -> str:
    """Return an interval as `low to high`; an end that too few values leave open is a dash."""
    if value is None or (value.low is None and value.high is None):
        return NOTHING
    low, high = (NOTHING if end is None else text(end) for end in (value.low, value.high))
    return f"{low} to {high}"


def p_text(p: float | None) -> str:
    """Return a p value: `0.031`, and `< 0.001` below that."""
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
