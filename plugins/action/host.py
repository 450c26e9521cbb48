"""Render a service's files on the controller and bring its part of the host about with one call."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template

TEMPLATE_OPTIONS = {"trim_blocks": True, "lstrip_blocks": True}


def schema_problem(text: str, archive: str, member: str, element: str | None) -> str | None:
    """Return what in the XML `text` breaks the schema, or None.

    `archive` is the distribution's tar file on the controller and `member` the end of the schema's path in it; the
    schema's neighbours are there for its imports. `element` names the child of the root that the schema describes.
    """
    try:
        from lxml import etree
    except ImportError:
        raise AnsibleActionFail("the controller's Python has no lxml to check a file against its schema") from None

    class FromArchive(etree.Resolver):
        def resolve(self, url: str, _id: Any, context: Any) -> Any:
            found = schemas.get(Path(url).name)
            return self.resolve_string(found, context, base_url=url) if found else None

    folder = member.rpartition("/")[0]
    with tarfile.open(archive) as source:
        schemas = {}
        for info in source:
            if f"{folder}/" in info.name and info.name.endswith(".xsd"):
                schemas[Path(info.name).name] = source.extractfile(info).read()  # type: ignore[union-attr]
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(FromArchive())
    schema = etree.XMLSchema(etree.fromstring(schemas[Path(member).name], parser, base_url=Path(member).name))
    try:
        root = etree.fromstring(text.encode())
    except etree.XMLSyntaxError as error:
        return f"not well-formed: {error}"
    part = root if element is None else next(iter(root.iterchildren("{*}" + element)), None)
    if part is None:
        return f"no element {element}"
    if schema.validate(part):
        return None
    first = schema.error_log[0]
    return f"line {first.line}: {first.message}"


class ActionModule(ActionBase):
    """See plugins/modules/host.py for the documentation of the arguments."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        work = dict(self._task.args)
        work["files"] = [self._ready(dict(entry), variables) for entry in work.get("files") or []]
        # One opaque argument: the contents are neither for the host's log nor for -vvv.
        payload = base64.b64encode(json.dumps(work).encode()).decode()
        return self._execute_module("brokerdrill.ha.host", module_args={"payload": payload}, task_vars=variables)

    def _ready(self, entry: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Turn one entry with a template, a source or a content into one with its content only."""
        kinds = [kind for kind in ("template", "src", "content") if kind in entry]
        if len(kinds) != 1:
            raise AnsibleActionFail(f"{entry.get('dest')}: give one of template, src and content")
        if kinds == ["template"]:
            entry["content"] = self._render(str(entry.pop("template")), str(entry["dest"]), variables)
        elif kinds == ["src"]:
            entry["content"] = Path(self._find_needle("files", str(entry.pop("src")))).read_text()
        # Templating gives a lone number or a list its own type, and drops the newline that ends a text file.
        entry["content"] = str(entry["content"]).rstrip("\n") + "\n"
        schema = entry.pop("schema", None)
        if schema:
            problem = schema_problem(
                entry["content"], str(schema["archive"]), str(schema["member"]), schema.get("element")
            )
            if problem:
                raise AnsibleActionFail(f"{entry['dest']} breaks the product's schema: {problem}")
        return entry

    def _render(self, name: str, dest: str, variables: dict[str, Any]) -> str:
        source = self._find_needle("templates", name)
        places = [*variables.get("ansible_search_path", []), str(Path(source).parent)]
        search = [path for place in places for path in (str(Path(place) / "templates"), place)]
        templar = self._templar.copy_with_new_env(
            searchpath=search, available_variables={**variables, "template_destpath": dest}
        )
        text = trust_as_template(Path(source).read_text())
        rendered = templar.template(text, escape_backslashes=False, overrides=TEMPLATE_OPTIONS)
        return "" if rendered is None else str(rendered)
