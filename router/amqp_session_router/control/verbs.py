"""The control verbs as data: the words of each, what it does, and the edit of the configuration that it is.

A verb is a pattern of words: UPPER CASE is a word of the verb itself (in any case when typed), `<name>` an argument,
`[name]` one that may be absent, `[name...]` any number. The longest pattern that fits counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from amqp_session_router.base.errors import UsageError, unknown_name

Data = dict[str, Any]
Arguments = dict[str, Any]
"""Argument's name → text; None for an absent one; a list of text for `[name...]`."""
Edit = Callable[[Data, Arguments], None]


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb. With an `edit` it changes the running configuration, else the control server knows what it does."""

    pattern: str
    help: str
    edit: Edit | None = field(default=None, compare=False)

    def match(self, words: Sequence[str]) -> Arguments | None:
        """Return the arguments if `words` are this verb, else None."""
        arguments: Arguments = {}
        left = list(words)
        for part in self.pattern.split():
            if part.startswith("[") and part.endswith("...]"):
                arguments[part[1:-4]] = left
                left = []
            elif part.startswith("["):
                arguments[part[1:-1]] = left.pop(0) if left else None
            elif not left:
                return None
            elif part.startswith("<"):
                arguments[part[1:-1]] = left.pop(0)
            elif left.pop(0).upper() != part:
                return None
        return None if left else arguments


# --- edits --------------------------------------------------------------------------------------------------------


def _part(data: Data, *path: str) -> Data:
    """Return the map at `path`, made if it is absent."""
    for step in path:
        if data.get(step) is None:
            data[step] = {}
        data = data[step]
    return data


def _existing(data: Data, kind: str, name: str) -> Data:
    parts = _part(data, f"{kind}s")
    if name not in parts:
        raise UsageError(unknown_name(kind, name, parts))
    found: Data = parts[name]
    return found


def _integer(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what} is a whole number, not {text!r}") from None


def _number(text: str, what: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{what} is a number, not {text!r}") from None
    return int(value) if value.is_integer() else value


def _new(data: Data, kind: str, name: str) -> Data:
    parts = _part(data, f"{kind}s")
    if name in parts:
        raise UsageError(f"there is a {kind} called {name!r} already")
    return parts


_BACKEND_OPTIONS = ("SEND-PROXY", "SEND-PROXY-V2", "TLS", "LOCAL", "DRAIN", "WEIGHT=n", "ADDRESS=ip", "VHOST=name")


def _backend_add(data: Data, arguments: Arguments) -> None:
    backends = _new(data, "backend", arguments["name"])
    part: Data = {"host": arguments["host"], "port": _integer(arguments["port"], "a port")}
    if arguments["datacenter"]:
        part["datacenter"] = arguments["datacenter"]
    for option in arguments["option"]:
        name, _, value = option.partition("=")
        match name.upper(), value:
            case "SEND-PROXY", "":
                part["proxy_protocol"] = 1
            case "SEND-PROXY-V2", "":
                part["proxy_protocol"] = 2
            case "TLS", "":
                part["tls"] = {}
            case "LOCAL" | "DRAIN", "":
                part[name.lower()] = True
            case "WEIGHT", value if value:
                part["weight"] = _integer(value, "a weight")
            case "ADDRESS" | "VHOST", value if value:
                part[name.lower()] = value
            case _:
                raise UsageError(f"{option!r} is no option of a backend; there are: {', '.join(_BACKEND_OPTIONS)}")
    backends[arguments["name"]] = part


def _backend_delete(data: Data, arguments: Arguments) -> None:
    name = arguments["name"]
    _existing(data, "backend", name)
    users = [farm for farm, part in _part(data, "farms").items() if name in part.get("members", [])]
    if users:
        raise UsageError(f"the backend {name!r} is a member of the farm {users[0]!r}: FARM LEAVE first")
    del data["backends"][name]


def _backend_set(key: str, value: Callable[[Arguments], Any]) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        _existing(data, "backend", arguments["name"])[key] = value(arguments)

    return edit


def _farm_add(data: Data, arguments: Arguments) -> None:
    farms = _new(data, "farm", arguments["name"])
    farms[arguments["name"]] = {"selector": arguments["selector"], "members": arguments["backend"]}


def _farm_delete(data: Data, arguments: Arguments) -> None:
    _existing(data, "farm", arguments["name"])
    del data["farms"][arguments["name"]]


def _farm_partition(data: Data, arguments: Arguments) -> None:
    _existing(data, "farm", arguments["name"]).setdefault("policies", []).append(arguments["policy"])


def _farm_unpartition(data: Data, arguments: Arguments) -> None:
    _existing(data, "farm", arguments["name"])["policies"] = []


def _farm_join(data: Data, arguments: Arguments) -> None:
    _existing(data, "farm", arguments["name"]).setdefault("members", []).append(arguments["backend"])


def _farm_leave(data: Data, arguments: Arguments) -> None:
    members = _existing(data, "farm", arguments["name"]).setdefault("members", [])
    if arguments["backend"] not in members:
        raise UsageError(unknown_name(f"member of {arguments['name']}", arguments["backend"], members))
    members.remove(arguments["backend"])


def _plain_rule(rule: Data, vhost: str) -> bool:
    """Whether `rule` is one that MAP made or could have: the vhost and the target, no further condition."""
    return rule.get("vhost") == vhost and not rule.keys() & {"listener", "key", "matches"}


def _map(target: str) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        rules = data.setdefault("rules", [])
        vhost = arguments["vhost"]
        fresh = {"vhost": vhost, target: arguments.get(target, True)}
        for index, rule in enumerate(rules):
            if _plain_rule(rule, vhost):
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
    left = [rule for rule in rules if not _plain_rule(rule, arguments["vhost"])]
    if len(left) == len(rules):
        raise UsageError(
            unknown_name("mapped vhost", arguments["vhost"], {r["vhost"] for r in rules if r.get("vhost")})
        )
    data["rules"] = left


def _map_default(data: Data, arguments: Arguments) -> None:
    data["default"] = {"farm": arguments["farm"]}


def _remove_default(data: Data, arguments: Arguments) -> None:
    data["default"] = None


LIMITS = {
    "CONN_RATE": "connection_rate",
    "CONN_RATE_ALARM": "connection_rate_alarm",
    "TOTAL_CONN": "connections",
    "TOTAL_CONN_ALARM": "connections_alarm",
    "DATA_RATE": "data_rate",
    "DATA_RATE_ALARM": "data_rate_alarm",
    "CONN_DATA_RATE": "connection_data_rate",
    "CONN_DATA_RATE_ALARM": "connection_data_rate_alarm",
    "FRAME_MAX": "frame_max",
}


def _limit_name(word: str) -> str:
    if word.upper() not in LIMITS:
        raise UsageError(unknown_name("limit", word.upper(), LIMITS))
    return LIMITS[word.upper()]


def _limit(data: Data, arguments: Arguments) -> None:
    path = ("limits", "default") if arguments.get("vhost") is None else ("limits", "vhosts", arguments["vhost"])
    _part(data, *path)[_limit_name(arguments["limit"])] = _number(arguments["value"], "a limit")


def _limit_disable(data: Data, arguments: Arguments) -> None:
    name = _limit_name(arguments["limit"])
    if arguments.get("vhost") is None:
        _part(data, "limits", "default").pop(name, None)
        return
    vhosts = _part(data, "limits", "vhosts")
    part = vhosts.get(arguments["vhost"], {})
    part.pop(name, None)
    if not part:
        vhosts.pop(arguments["vhost"], None)


def _alarm_only(on: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        _part(data, "limits")["alarm_only"] = on

    return edit


def _listen(secure: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        port = _integer(arguments["port"], "a port")
        listeners = _part(data, "listeners")
        name = f"{'secure' if secure else 'plain'}-{port}"
        if name in listeners:
            raise UsageError(f"port {port} is listened on already")
        listeners[name] = {"port": port} | ({"tls": {}} if secure else {})

    return edit


def _listen_stop(data: Data, arguments: Arguments) -> None:
    listeners = _part(data, "listeners")
    if arguments["port"] is None:
        listeners.clear()
        return
    wanted = arguments["port"]
    names = [name for name, part in listeners.items() if wanted in (name, str(part.get("port", 5672)))]
    if not names:
        raise UsageError(f"no listener has the port or name {wanted!r}")
    for name in names:
        del listeners[name]


_VERBOSITY = ("critical", "error", "warning", "info", "debug", "debug")


def _level(text: str) -> str:
    if text.isdigit() and int(text) < len(_VERBOSITY):
        return _VERBOSITY[int(text)]
    names = {"fatal": "critical", "warn": "warning", "trace": "debug"}
    return names.get(text.lower(), text.lower())


def _log_console(data: Data, arguments: Arguments) -> None:
    _part(data, "log")["level"] = _level(arguments["verbosity"])


def _log_file(data: Data, arguments: Arguments) -> None:
    log = _part(data, "log")
    log["file_level"] = _level(arguments["verbosity"])
    if arguments["file"] is not None:
        log["file"] = arguments["file"]
    if log.get("file") is None:
        raise UsageError("there is no log file yet; name one: LOG FILE <verbosity> <file>")


def _datacenter(data: Data, arguments: Arguments) -> None:
    data["datacenter"] = arguments["name"]


def _names(on: bool) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        data["resolve_client_names"] = on

    return edit


def _auth_service(data: Data, arguments: Arguments) -> None:
    if arguments["port"] is None:
        url = arguments["host"]
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"AUTH SERVICE takes a URL, or host, port and target; {url!r} is no URL")
    else:
        target = arguments["target"] or "/"
        host = f"[{arguments['host']}]" if ":" in arguments["host"] else arguments["host"]
        port = _integer(arguments["port"], "a port")
        url = f"http://{host}:{port}{'' if target.startswith('/') else '/'}{target}"
    _part(data, "authorization")["url"] = url


def _auth_allow(data: Data, arguments: Arguments) -> None:
    data["authorization"] = None


def _stat_send(data: Data, arguments: Arguments) -> None:
    receivers = data.setdefault("statsd", [])
    fresh = {"host": arguments["host"], "port": _integer(arguments["port"], "a port")}
    if any(one["host"] == fresh["host"] and one.get("port", 8125) == fresh["port"] for one in receivers):
        raise UsageError(f"metrics go to {arguments['host']}:{arguments['port']} already")
    receivers.append(fresh)


def _stat_stop(data: Data, arguments: Arguments) -> None:
    data["statsd"] = []


_TLS_FILES = {
    "KEY_FILE": "key_file",
    "RSA_KEY_FILE": "key_file",
    "CERT_CHAIN_FILE": "cert_file",
    "CA_CERT_FILE": "ca_file",
    "TMP_DH_FILE": "dh_file",
    "MINIMUM": "minimum",
}
_TLS_WORDS = (*_TLS_FILES, "VERIFY_MODE")
_VERIFY = ("NONE", "PEER", "FAIL_IF_NO_PEER_CERT", "CLIENT_ONCE")


def _tls(side: str) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        part = _part(data, "tls", side)
        words = list(arguments["setting"])
        if not words:
            raise UsageError(f"TLS {side.upper()} needs a setting; there are: {', '.join(_TLS_WORDS)}, CIPHERS")
        while words:
            word = words.pop(0).upper()
            if word not in _TLS_WORDS:
                raise UsageError(unknown_name("TLS setting", word, _TLS_WORDS))
            if not words:
                raise UsageError(f"TLS {word} needs a value")
            if word == "VERIFY_MODE":
                modes = []
                while words and words[0].upper() in _VERIFY:
                    modes.append(words.pop(0).upper())
                if not modes:
                    raise UsageError(unknown_name("verify mode", words[0], _VERIFY))
                part.update(_verify(side, modes))
            elif word == "TMP_DH_FILE" and side == "egress":
                raise UsageError("Diffie-Hellman parameters are the server's: TLS INGRESS TMP_DH_FILE")
            else:
                part[_TLS_FILES[word]] = words.pop(0)

    return edit


def _verify(side: str, modes: Sequence[str]) -> Data:
    if "NONE" in modes and len(modes) > 1:
        raise UsageError("VERIFY_MODE NONE excludes the others")
    if side == "egress":
        return {"verify": "NONE" not in modes}
    if "NONE" in modes:
        return {"client_cert": "none"}
    # OpenSSL's FAIL_IF_NO_PEER_CERT counts only together with PEER; who asks for it means "required".
    return {"client_cert": "required" if "FAIL_IF_NO_PEER_CERT" in modes else "optional"}


def _ciphers(side: str) -> Edit:
    def edit(data: Data, arguments: Arguments) -> None:
        _part(data, "tls", side)["ciphers"] = arguments["suites"]

    return edit


# --- the table ------------------------------------------------------------------------------------------------------

DETAILS = ("user", "client_id", "source", "sni", "role", "listener")

VERBS: tuple[Verb, ...] = (
    Verb("AUTH SERVICE <host> [port] [target]", "Ask this HTTP hook, or this URL, about each session", _auth_service),
    Verb("AUTH ALWAYS_ALLOW", "Ask no hook", _auth_allow),
    Verb("AUTH PRINT", "Show the hook"),
    Verb(
        "BACKEND ADD <name> <datacenter> <host> <port> [option...]",
        f"Add a broker; options: {', '.join(_BACKEND_OPTIONS)}",
        _backend_add,
    ),
    Verb(
        "BACKEND ADD_DNS <name> <datacenter> <host> <port> [option...]",
        "The same: a host is resolved at each attempt",
        _backend_add,
    ),
    Verb("BACKEND DELETE <name>", "Remove a broker; its sessions stay", _backend_delete),
    Verb("BACKEND DRAIN <name>", "Give it no new sessions", _backend_set("drain", lambda _: True)),
    Verb("BACKEND UNDRAIN <name>", "Give it new sessions again", _backend_set("drain", lambda _: False)),
    Verb(
        "BACKEND WEIGHT <name> <weight>",
        "Set its weight",
        _backend_set("weight", lambda arguments: _integer(arguments["weight"], "a weight")),
    ),
    Verb(
        "BACKEND DISCONNECT_GRACEFUL <name> [rate]",
        "Connection.Close to all its sessions, so many a second (100); of one that drains until it has none left",
    ),
    Verb("BACKEND FORCE_DISCONNECT <name>", "Cut both sockets of all its sessions"),
    Verb("BACKEND BACKEND_DISCONNECT <name>", "Cut the broker's side of all its sessions"),
    Verb("BACKEND PRINT", "Show the brokers, with what their checks say"),
    Verb("CONFIG PRINT", "Show the running configuration, as a file"),
    Verb("CONFIG RELOAD", "Read the file again; changes that were not saved are given up"),
    Verb("CONFIG SAVE", "Write the running configuration to the file (the old one to FILE.bak)"),
    Verb("CONN [filter...]", "Show the sessions; filters: vhost=, backend=, user=, source=, phase="),
    Verb("DATACENTER SET <name>", "Say where this router is", _datacenter),
    Verb("DATACENTER PRINT", "Show where this router is"),
    Verb(
        "DRIFT [peer...]",
        "Show which sections are not those of the file, or of peers, each HOST:PORT of a router's status page",
    ),
    Verb(
        "EXIT [seconds] [grace]",
        "Say on `/ready` that it leaves; after the grace (0) take no more sessions, close all within `seconds` (30)",
    ),
    Verb("FARM ADD <name> <selector> [backend...]", "Add a farm", _farm_add),
    Verb("FARM PARTITION <name> <policy>", "Append a partition policy", _farm_partition),
    Verb("FARM UNPARTITION <name>", "Take its partition policies away", _farm_unpartition),
    Verb("FARM JOIN <name> <backend>", "Add a member", _farm_join),
    Verb("FARM LEAVE <name> <backend>", "Take a member away; its sessions stay", _farm_leave),
    Verb("FARM DELETE <name>", "Remove a farm; its sessions stay", _farm_delete),
    Verb("FARM PRINT", "Show the farms, with their partitions as they are now"),
    Verb("HELP", "Show the verbs"),
    Verb("LIMIT ALARM_ONLY ON", "Let every limit only warn", _alarm_only(True)),
    Verb("LIMIT ALARM_ONLY OFF", "Let limits refuse and delay again", _alarm_only(False)),
    Verb("LIMIT DISABLE <limit> DEFAULT", "Take a default limit away", _limit_disable),
    Verb("LIMIT DISABLE <limit> VHOST <vhost>", "Take a vhost's own limit away: the default counts", _limit_disable),
    Verb("LIMIT PRINT [vhost]", "Show the default limits, or those of a vhost"),
    Verb("LIMIT <limit> DEFAULT <value>", f"Set a limit of every vhost; limits: {', '.join(LIMITS)}", _limit),
    Verb("LIMIT <limit> VHOST <vhost> <value>", "Set a limit of one vhost", _limit),
    Verb("LISTEN START <port>", "Listen on a port, plain", _listen(False)),
    Verb("LISTEN START_SECURE <port>", "Listen on a port, with the TLS INGRESS settings", _listen(True)),
    Verb("LISTEN STOP [port]", "Listen no more on this port, or on none; sessions stay", _listen_stop),
    Verb("LISTEN PRINT", "Show the listeners"),
    Verb("LOG CONSOLE <verbosity>", "Set the level on standard error: 0 (fatal) to 5, or its name", _log_console),
    Verb("LOG FILE <verbosity> [file]", "Set the level in the log file, and the file", _log_file),
    Verb("LOG PRINT", "Show both"),
    Verb("MAP BACKEND <vhost> <backend>", "Send a vhost to one broker", _map("backend")),
    Verb("MAP FARM <vhost> <farm>", "Send a vhost to a farm", _map("farm")),
    Verb("MAP LOCAL <vhost>", "Send a vhost to the local broker", _map("local")),
    Verb("MAP REJECT <vhost> <reject>", "Refuse a vhost with this sentence", _map("reject")),
    Verb("MAP UNMAP <vhost>", "Forget where a vhost goes", _unmap),
    Verb("MAP DEFAULT <farm>", "Send every other vhost to this farm", _map_default),
    Verb("MAP REMOVE_DEFAULT", "Refuse every other vhost", _remove_default),
    Verb("MAP PRINT", "Show the rules in their order"),
    Verb(
        "MAP TEST <vhost> [detail...]",
        f"Show where a session would go; details: {', '.join(DETAILS)}, each with =VALUE",
    ),
    Verb("MAPHOSTNAME DNS", "Tell the broker the clients' host names, by reverse DNS", _names(True)),
    Verb("MAPHOSTNAME OFF", "Tell it their addresses", _names(False)),
    Verb("SESSION <id> PRINT", "Show one session"),
    Verb("SESSION <id> PAUSE", "Read no more from its client"),
    Verb("SESSION <id> UNPAUSE", "Read on"),
    Verb("SESSION <id> DISCONNECT_GRACEFUL", "Connection.Close to both sides"),
    Verb("SESSION <id> FORCE_DISCONNECT", "Cut both sockets"),
    Verb("SESSION <id> BACKEND_DISCONNECT", "Cut the broker's side"),
    Verb("STAT PRINT [filter]", "Show the counts; filter: overall, process, all, vhost=, backend=, source="),
    Verb("STAT LISTEN <format> [filter]", "Show them every second, as json or human"),
    Verb("STAT SEND <host> <port>", "Send them as statsd packets, too", _stat_send),
    Verb("STAT STOP SEND", "Send them to nobody", _stat_stop),
    Verb("STAT ENABLE <which>", "Count per-source"),
    Verb("STAT DISABLE <which>", "Do not count per-source"),
    Verb("STICKY PRINT", "Show how many keys each farm remembers"),
    Verb("STICKY CLEAR <farm>", "Forget a farm's keys"),
    Verb("TLS INGRESS CIPHERS PRINT", "Show the ciphers towards clients"),
    Verb("TLS EGRESS CIPHERS PRINT", "Show the ciphers towards brokers"),
    Verb("TLS INGRESS CIPHERS SET <suites>", "Set them (TLS 1.2), separated by ':'", _ciphers("ingress")),
    Verb("TLS EGRESS CIPHERS SET <suites>", "Set them (TLS 1.2), separated by ':'", _ciphers("egress")),
    Verb(
        "TLS INGRESS [setting...]",
        f"Set the shared TLS towards clients: {', '.join(_TLS_WORDS)}, each with a value",
        _tls("ingress"),
    ),
    Verb("TLS EGRESS [setting...]", "The same towards brokers", _tls("egress")),
    Verb("TLS PRINT", "Show both, and which listeners and brokers use TLS"),
    Verb("VHOST PAUSE <vhost>", "Pause its sessions and those that come"),
    Verb("VHOST UNPAUSE <vhost>", "Let them go on; one that is mapped elsewhere now is disconnected gracefully"),
    Verb("VHOST DISCONNECT_GRACEFUL <vhost>", "Connection.Close to all its sessions"),
    Verb("VHOST FORCE_DISCONNECT <vhost>", "Cut both sockets of all its sessions"),
    Verb("VHOST BACKEND_DISCONNECT <vhost>", "Cut the broker's side of all its sessions"),
    Verb("VHOST PRINT", "Show the vhosts with sessions, and the paused ones"),
    Verb("WORKERS PRINT", "Show the router's processes, the seconds that each runs, and its sessions"),
)


def find(words: Sequence[str]) -> tuple[Verb, Arguments]:
    """Return the verb that `words` are, with its arguments; raises UsageError with the forms that come near."""
    fits = [(verb, arguments) for verb in VERBS if (arguments := verb.match(words)) is not None]
    if fits:
        return max(fits, key=lambda fit: _own_words(fit[0]))
    first = words[0].upper() if words else ""
    families = sorted({verb.pattern.split()[0] for verb in VERBS})
    if first not in families:
        raise UsageError(unknown_name("verb", first, families) if first else "no verb; HELP shows them")
    same = [verb for verb in VERBS if verb.pattern.split()[0] == first]
    second = [verb for verb in same if len(words) > 1 and words[1].upper() in verb.pattern.split()]
    raise UsageError(f"no such form; there are: {'; '.join(verb.pattern for verb in second or same)}")


def _own_words(verb: Verb) -> int:
    return sum(part[0] not in "<[" for part in verb.pattern.split())
