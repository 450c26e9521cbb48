"""Render a service's files on the controller and bring its part of the host about with one call."""

from __future__ import annotations

import base64
import functools
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.template import trust_as_template
from ansible_collections.brokerdrill.ha.plugins.plugin_utils.action import Action

TEMPLATE_OPTIONS = {"trim_blocks": True, "lstrip_blocks": True}


XSD = "http://www.w3.org/2001/XMLSchema"


@functools.cache
def schemas_in(archive: str, member: str, jar: str | None) -> dict[str, bytes]:
    """Return the schema `member` and its neighbours, by file name, out of the distribution's tar file `archive`.

    `jar`: how the name of the jar begins that holds them; None where they are in the archive itself.
    """
    folder = member.rpartition("/")[0]
    with tarfile.open(archive) as source:
        if jar is None:
            wanted = [info for info in source if f"{folder}/" in info.name and info.name.endswith(".xsd")]
            return {Path(info.name).name: source.extractfile(info).read() for info in wanted}  # type: ignore[union-attr]
        (inside,) = [info for info in source if Path(info.name).name.startswith(jar) and info.name.endswith(".jar")]
        with zipfile.ZipFile(io.BytesIO(source.extractfile(inside).read())) as classes:  # type: ignore[union-attr]
            names = [name for name in classes.namelist() if name.rpartition("/")[0] == folder and name.endswith(".xsd")]
            return {Path(name).name: classes.read(name) for name in names}


def schema_problem(text: str, archive: str, members: list[dict[str, str]], element: str | None = None) -> str | None:
    """Return what in the XML `text` breaks the schema, or None.

    `archive` is the distribution's tar file on the controller. `members` are the schemas in it that count together:
    each the end of its path, and the jar that it is in, if any; their neighbours are there for their imports.
    `element` names the child of the root that the schema describes.
    """
    try:
        from lxml import etree
    except ImportError:
        raise AnsibleActionFail("the controller's Python has no lxml to check a file against its schema") from None

    class FromArchive(etree.Resolver):
        def resolve(self, url: str, _id: Any, context: Any) -> Any:
            found = schemas.get(Path(url).name)
            return self.resolve_string(found, context, base_url=url) if found else None

    schemas: dict[str, bytes] = {}
    imports = []
    for one in members:
        found = schemas_in(archive, one["member"], one.get("jar"))
        name = Path(one["member"]).name
        namespace = etree.fromstring(found[name]).get("targetNamespace")
        imports.append(f'<import schemaLocation="{name}" namespace="{namespace}"/>')
        schemas.update(found)
    parser = etree.XMLParser(no_network=True)
    parser.resolvers.add(FromArchive())
    together = f'<schema xmlns="{XSD}">{"".join(imports)}</schema>'.encode()
    schema = etree.XMLSchema(etree.fromstring(together, parser, base_url="together.xsd"))
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


class ActionModule(Action):
    """See plugins/modules/host.py for the documentation of the arguments."""

    def act(self, args: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        args["files"] = [self._ready(dict(entry), variables) for entry in args.get("files") or []]
        # One opaque argument: the contents are neither for the host's log nor for -vvv.
        payload = base64.b64encode(json.dumps(args).encode()).decode()
        return self._execute_module("brokerdrill.ha.host", module_args={"payload": payload}, task_vars=variables)

    def _ready(self, entry: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
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
            members = schema.get("members") or [{"member": str(schema["member"])}]
            problem = schema_problem(entry["content"], str(schema["archive"]), members, schema.get("element"))
            if problem:
                raise AnsibleActionFail(f"{entry['dest']} breaks the product's schema: {problem}")
        return entry

    def _render(self, name: str, dest: str, variables: Mapping[str, Any]) -> str:
        source = self._find_needle("templates", name)
        places = [*variables.get("ansible_search_path", []), str(Path(source).parent)]
        search = [path for place in places for path in (str(Path(place) / "templates"), place)]
        templar = self._templar.copy_with_new_env(
            searchpath=search, available_variables={**variables, "template_destpath": dest}
        )
        text = trust_as_template(Path(source).read_text())
        rendered = templar.template(text, escape_backslashes=False, overrides=TEMPLATE_OPTIONS)
        return "" if rendered is None else str(rendered)
