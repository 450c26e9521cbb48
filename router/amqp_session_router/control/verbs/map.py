"""MAP and MAPHOSTNAME: where virtual hosts go, and what brokers learn of clients' names."""

from __future__ import annotations

from typing import Any

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.base.model import Identity, Route
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Edit, Verb, pairs
from amqp_session_router.selection.rules import first_match

_DETAILS = ("user", "client_id", "source", "sni", "role", "listener")


def _is_plain(rule: Data, vhost: str) -> bool:
    """Whether `rule` is one that MAP made or could have: the vhost and the target, no further condition."""
    return rule.get("vhost") == vhost and not rule.keys() & {"listener", "key", "matches"}


def _to(target: str) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        rules = data.setdefault("rules", [])
        vhost = arguments["vhost"]
        fresh = {"vhost": vhost, target: arguments.get(target, True)}
        for index, rule in enumerate(rules):
            if _is_plain(rule, vhost):
                if "rewrite" in rule:
                    fresh["rewrite"] = rule["rewrite"]
                rules[index] = fresh
                return
        # In front of the patterns, which are more general, and after the other exact ones.
        place = next((i for i, rule in enumerate(rules) if rule.get("vhost") is None), len(rules))
        rules.insert(place, fresh)

    return edit


def _unmap(data: Data, arguments: Arguments) -> None:
    rules = data.get("rules", [])
    left = [rule for rule in rules if not _is_plain(rule, arguments["vhost"])]
    if len(left) == len(rules):
        mapped = {rule["vhost"] for rule in rules if rule.get("vhost")}
        raise UsageError(unknown_name("mapped vhost", arguments["vhost"], mapped))
    data["rules"] = left


def _default(data: Data, arguments: Arguments) -> None:
    data["default"] = {"farm": arguments["farm"]}


def _remove_default(data: Data, arguments: Arguments) -> None:
    data["default"] = None


def _print(service: Service, _: Arguments) -> Reply:
    rows = []
    rules = service.settings.rules
    for index, rule in enumerate(rules):
        is_default = service.settings.config.default is not None and index == len(rules) - 1
        rows.append(
            {
                "rule": "default" if is_default else index,
                "vhost": rule.vhost if rule.vhost_pattern is None else f"~ {rule.vhost_pattern.pattern}",
                "listener": rule.listener,
                "key": f"{rule.key.type} ~ {rule.matches.pattern}" if rule.key and rule.matches else "",
                "rewrite": rule.rewrite,
                "to": rule.to.title,
            }
        )
    return {"rows": rows}


def _test(service: Service, arguments: Arguments) -> Reply:
    details = pairs(arguments["detail"], _DETAILS)
    identity = Identity(
        vhost=arguments["vhost"],
        user=details.get("user", ""),
        client_id=details.get("client_id", ""),
        source_ip=details.get("source", ""),
        sni_host=details.get("sni", ""),
        roles=(details["role"],) if "role" in details else (),
        listener=details.get("listener", ""),
    )
    return {"data": _explanation(service, identity)}


def _explanation(service: Service, identity: Identity) -> dict[str, Any]:
    """Return where a session of `identity` would go, as plain data. No mark is changed and no key remembered."""
    routes = service.routing
    found = first_match(routes.settings.rules, identity)
    decision = routes.planner.plan(identity)
    if not isinstance(decision, Route):
        return {"vhost": identity.vhost, "reject": decision.text, "code": decision.code}
    assert found is not None
    return {
        "vhost": identity.vhost,
        "rule": routes.settings.rules.index(found[0]),
        "target": decision.target,
        "opens": decision.vhost,
        "key": decision.key,
        "paused": identity.vhost in routes.paused,
        "candidates": [backend.name for backend in decision.candidates],
    }


def _names(on: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        data["resolve_client_names"] = on

    return edit


VERBS = (
    Verb("MAP BACKEND <vhost> <backend>", "Send a vhost to one broker", Changes.CONFIGURATION, edit=_to("backend")),
    Verb("MAP FARM <vhost> <farm>", "Send a vhost to a farm", Changes.CONFIGURATION, edit=_to("farm")),
    Verb("MAP LOCAL <vhost>", "Send a vhost to the local broker", Changes.CONFIGURATION, edit=_to("local")),
    Verb(
        "MAP REJECT <vhost> <reject>",
        "Refuse a vhost with this sentence",
        Changes.CONFIGURATION,
        edit=_to("reject"),
    ),
    Verb("MAP UNMAP <vhost>", "Forget where a vhost goes", Changes.CONFIGURATION, edit=_unmap),
    Verb("MAP DEFAULT <farm>", "Send every other vhost to this farm", Changes.CONFIGURATION, edit=_default),
    Verb("MAP REMOVE_DEFAULT", "Refuse every other vhost", Changes.CONFIGURATION, edit=_remove_default),
    Verb("MAP PRINT", "Show the rules in their order", Changes.NOTHING, act=_print),
    Verb(
        "MAP TEST <vhost> [detail...]",
        f"Show where a session would go; details: {', '.join(_DETAILS)}, each with =VALUE",
        Changes.NOTHING,
        act=_test,
    ),
    Verb(
        "MAPHOSTNAME DNS",
        "Tell the broker the clients' host names, by reverse DNS",
        Changes.CONFIGURATION,
        edit=_names(True),
    ),
    Verb("MAPHOSTNAME OFF", "Tell it their addresses", Changes.CONFIGURATION, edit=_names(False)),
)
