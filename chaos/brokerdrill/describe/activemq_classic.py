"""ActiveMQ Classic: its descriptor from activemq.xml, jetty.xml and the broker's command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from brokerdrill.base.errors import UsageError
from brokerdrill.describe.found import (
    EVERYWHERE,
    LOOPBACK,
    DescribeOptions,
    Found,
    common,
    console_on_loopback,
    dead_letters,
    no_store,
    number,
    places,
    secured,
    tree,
)

PRODUCT = "activemq_classic"
# In the command line of a broker.
MARKER = "activemq.jar"
COMMANDS = ()
# The broker's own values where its files say nothing (AbstractLocker, LockableServiceSupport, JDBCPersistenceAdapter).
SLEEP_INTERVAL_MS, JDBC_KEEP_ALIVE_MS = 10_000, 30_000
PORT = 8161
DEAD_LETTERS = "ActiveMQ.DLQ"
# By element of a store: the role's word for it, and for the locker that it has by itself.
_STORES = {"kahaDB": ("kahadb", "shared_file"), "jdbcPersistenceAdapter": ("jdbc", "database")}
_LOCKERS = {
    "shared-file-locker": "shared_file",
    "database-locker": "database",
    "lease-database-locker": "lease_database",
}
# The same as beans, by the end of their class.
_LOCKER_CLASSES = {
    "SharedFileLocker": "shared_file",
    "DefaultDatabaseLocker": "database",
    "LeaseDatabaseLocker": "lease_database",
}
# What names a locker: attributes of the store (#ID) and elements in it.
_LOCKER_NAMES = ("locker", "databaseLocker")
_FEATURES = {"shared_file": "file_lock", "database": "database_lock", "lease_database": "lease"}
# By scheme of a connector's URL: the protocol of its clients, and whether it is TLS. `auto` speaks all.
_SCHEMES = {
    **dict.fromkeys(("tcp", "nio", "auto", "auto+nio"), ("openwire", False)),
    **dict.fromkeys(("ssl", "nio+ssl", "auto+ssl", "auto+nio+ssl"), ("openwire", True)),
    **{f"{name}{more}": (name, False) for name in ("amqp", "stomp", "mqtt") for more in ("", "+nio")},
    **{f"{name}{more}": (name, True) for name in ("amqp", "stomp", "mqtt") for more in ("+ssl", "+nio+ssl")},
}


def paths(found: Found) -> list[str]:
    """Return the files that `describe` reads."""
    folder = _folder(found)
    config = next((word.removeprefix("xbean:") for word in reversed(found.command) if word.startswith("xbean:")), "")
    config = config.removeprefix("file:").partition("?")[0]
    return [config if config.startswith("/") else f"{folder}/{config or 'activemq.xml'}", f"{folder}/jetty.xml"]


def _folder(found: Found) -> str:
    for name, inside in (("activemq.conf", ""), ("activemq.base", "/conf"), ("activemq.home", "/conf")):
        if value := found.property(name):
            return value.removesuffix("/") + inside
    raise UsageError(f"host {found.host}: the command line of {found.unit} names no activemq.base")


def describe(found: Found, options: DescribeOptions) -> dict[str, Any]:
    """Return the descriptor of the broker, which is called by its host: those of a store often have one name. Raises
    UsageError with what cannot be known, or is not supported."""
    config, jetty = paths(found)
    root = tree(found, config)
    broker = root.find(".//broker")
    if broker is None:
        raise UsageError(f"host {found.host}: {config} has no broker")
    adapter, locker, element, named = _store(found, root, broker, config)
    data = _said(found, broker, "dataDirectory") or f"{found.property('activemq.base') or ''}/activemq-data"
    directory = _said(found, element, "directory") or f"{data}/kahadb"
    if not options.store and (adapter == "jdbc" or not directory.startswith(f"{data}/")):
        raise no_store(found, config, found.host)
    url = options.management_url or _console(found, jetty)
    name = "lockAcquireSleepInterval"
    # (The store has it too, for its locker.)
    said = _property(found, named, name) or _said(found, element, name)
    sleep_ms = number(found, name, said, SLEEP_INTERVAL_MS)
    alive_ms = _number(found, element, "lockKeepAlivePeriod", JDBC_KEEP_ALIVE_MS if adapter == "jdbc" else 0)
    return {
        **common(found, PRODUCT, found.host),
        "role": "member",
        "store": options.store or found.host,
        "persistence_adapter": adapter,
        "locker": locker,
        "data_dir": data if adapter == "jdbc" else directory,
        "listeners": list(_listeners(found, broker)),
        "management": {
            "type": "jolokia",
            "url": url,
            "broker_name": _said(found, broker, "brokerName") or "localhost",
        },
        **secured(found, url, options),
        "addresses": list(_addresses(found, broker)),
        "settings": {
            "lock_acquire_sleep_interval_ms": sleep_ms,
            "lock_keep_alive_period_ms": alive_ms,
            "restart_delay_s": int(found.restart_s),
            **({"lease_duration_ms": sleep_ms} if locker == "lease_database" else {}),
        },
        "features": [
            *([_FEATURES[locker]] if locker else []),
            "database_store" if adapter == "jdbc" else "file_store",
            *(["lock_checked"] if locker and alive_ms else []),
        ],
    }


def _said(found: Found, element: Element | None, name: str) -> str:
    """An attribute's value, filled; empty where there is none."""
    return found.filled(element.get(name) or "") if element is not None else ""


def _number(found: Found, element: Element | None, name: str, default: int) -> int:
    return number(found, name, _said(found, element, name), default)


def _store(found: Found, root: Element, broker: Element, path: str) -> tuple[str, str | None, Element, Element | None]:
    """Return the role's words for the store and its locker (None: it takes no lock), the store's element, and the
    locker's where there is one."""
    if _said(found, broker, "persistent") == "false":
        raise UsageError(f"host {found.host}: {path} keeps messages in memory alone (persistent is false)")
    elements = broker.findall("persistenceAdapter/*")
    if len(elements) != 1 or elements[0].tag not in _STORES:
        what = elements[0].tag if elements else "its default store"
        raise UsageError(f"host {found.host}: {path} has {what}: write its descriptor by hand")
    (element,) = elements
    adapter, locker = _STORES[element.tag]
    named = _locker(found, root, element, path)
    if named is not None:
        word = _LOCKERS.get(named.tag) or _LOCKER_CLASSES.get((named.get("class") or "").rpartition(".")[2])
        if word is None:
            what = named.get("class") or named.tag
            raise UsageError(f"host {found.host}: {path} has the locker {what}: write its descriptor by hand")
        locker = word
    locked = "false" not in (_said(found, element, "useLock"), _said(found, element, "useDatabaseLock"))
    return adapter, locker if locked else None, element, named


def _locker(found: Found, root: Element, store: Element, path: str) -> Element | None:
    """The element of the store's locker: in it, or anywhere in the file where the store names its id; None where the
    store says nothing. Raises UsageError where the file has no such id."""
    name = next((store.get(one) or "" for one in _LOCKER_NAMES if store.get(one)), "").removeprefix("#")
    for inside in (child for one in _LOCKER_NAMES for child in store.findall(f"{one}/*")):
        if inside.tag != "ref":
            return inside
        name = inside.get("bean") or inside.get("local") or ""
    if not name:
        return None
    named = next((one for one in root.iter() if name in (one.get("id"), one.get("name"))), None)
    if named is None:
        raise UsageError(f"host {found.host}: {path} names the locker {name}, which is not in it")
    return named


def _property(found: Found, element: Element | None, name: str) -> str:
    """A property of a bean or of an element of the broker's own, filled; empty where there is none."""
    if element is None:
        return ""
    bean = element.find(f"property[@name='{name}']")
    return (
        _said(found, element, name)
        or _said(found, bean, "value")
        or (found.filled((bean.findtext("value") or "").strip()) if bean is not None else "")
    )


def _listeners(found: Found, broker: Element) -> Iterator[dict[str, Any]]:
    """What clients reach: connectors whose protocol the drills' clients speak."""
    for connector in broker.iterfind("transportConnectors/transportConnector"):
        name = connector.get("name")
        for place in places(found, f"transportConnector {name}", _said(found, connector, "uri"), _SCHEMES):
            protocol, tls = _SCHEMES[place.scheme]
            yield {
                "name": name or f"port{place.port}",
                "address": found.reached(place.host),
                "port": place.port,
                "protocol": protocol,
                "tls": tls,
            }


def _console(found: Found, path: str) -> str:
    """The URL of the console's Jolokia. Raises UsageError where the runner could not reach it."""
    beans = tree(found, path).iter("bean") if path in found.files else ()
    port = next((bean for bean in beans if bean.get("id") == "jettyPort"), None)
    if port is None:
        raise UsageError(f"host {found.host}: no jettyPort in {path}: say the URL of Jolokia by --management-url")
    said = {item.get("name"): _said(found, item, "value") for item in port.iterfind("property")}
    # What the command line says comes after the bean's own default, not after its properties.
    address = said.get("host") or found.property("jetty.host") or EVERYWHERE[1]
    if address in LOOPBACK:
        raise console_on_loopback(found, address)
    return f"http://{found.reached(address)}:{number(found, 'port', said.get('port') or '', PORT)}/api/jolokia/"


def _addresses(found: Found, broker: Element) -> Iterator[dict[str, Any]]:
    """The destinations that exist from the start, each with its queue of dead letters."""
    for routing, kind in (("anycast", "queue"), ("multicast", "topic")):
        letters = {"#": DEAD_LETTERS}
        for entry in broker.iterfind("destinationPolicy/policyMap/policyEntries/policyEntry"):
            shared = entry.find("deadLetterStrategy/sharedDeadLetterStrategy/deadLetterQueue/queue")
            if (match := _said(found, entry, kind)) and shared is not None:
                letters[match.replace(">", "#")] = _said(found, shared, "physicalName")
        for destination in broker.iterfind(f"destinations/{kind}"):
            name = _said(found, destination, "physicalName")
            yield {"name": name, "routing": routing, "dead_letter": dead_letters(letters, name)}


def joined(descriptors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptors as they are: brokers that take each other's place do not dial each other."""
    return list(descriptors)
