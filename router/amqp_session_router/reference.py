"""The tables of the README, made from the configuration's form and the verbs: `python -m amqp_session_router.reference
README.md` renews what stands between its markers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from amqp_session_router.config.schema import Config
from amqp_session_router.control.verbs import VERBS


def tables() -> dict[str, str]:
    """Return the README's generated parts by the name of their marker."""
    return {"settings": _table(("setting", "default", "meaning"), _settings(Config)), "verbs": _verbs()}


def renew(text: str) -> str:
    """Return the README `text` with what stands between `<!-- NAME -->` and `<!-- end -->` made anew."""
    for name, table in tables().items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, table=table: f"{found[1]}{table}\n{found[2]}",  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return text


def _verbs() -> str:
    return _table(("verb", "what it does"), ((f"`{verb.pattern}`", verb.help) for verb in VERBS))


def _table(heading: tuple[str, ...], rows: Any) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, info in model.model_fields.items():
        place = f"{prefix}{name}"
        inner, step = _inside(info.annotation)
        yield f"`{place}`", _default(info, inner), (info.description or "") + _choices(info.annotation)
        if inner is not None:
            yield from _settings(inner, f"{place}{step}.")


def _inside(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the part that a field holds, and how the way to it goes on: `.NAME` in a map, `[]` in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _inside(arguments[0])
    for argument in arguments:
        inner, step = _inside(argument)
        if inner is not None:
            return inner, {dict: ".NAME", list: "[]"}.get(origin, "") + step
    return None, ""


def _choices(annotation: Any) -> str:
    found = _literals(annotation)
    return f" One of {', '.join(f'`{one}`' for one in found)}." if len(found) > 1 else ""


def _literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [one for argument in get_args(annotation) for one in _literals(argument)]


def _default(info: FieldInfo, inner: type[BaseModel] | None) -> str:
    if info.default is PydanticUndefined:
        return "needed"
    if info.default is None or inner is not None or info.default in ({}, [], ""):
        return ""
    return f"`{str(info.default).lower() if isinstance(info.default, bool) else info.default}`"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(renew(file.read_text("utf-8")), "utf-8")
