"""CONFIG, DATACENTER and DRIFT: the configuration as a whole, and where it differs from others."""

from __future__ import annotations

from amqp_session_router.config import loader
from amqp_session_router.control import drift
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.running_configuration import changed
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Data, Verb


def _print(service: Service, _: Arguments) -> Reply:
    return {
        "text": loader.to_yaml(service.settings.config).rstrip(),
        "data": loader.to_data(service.settings.config),
        "unsaved": service.unsaved,
    }


async def _reload(service: Service, _: Arguments) -> Reply:
    return {"text": changed(await service.configuration.reload())}


async def _save(service: Service, _: Arguments) -> Reply:
    await service.configuration.save()
    return {"text": f"written to {service.configuration.file}"}


def _datacenter_set(data: Data, arguments: Arguments) -> None:
    data["datacenter"] = arguments["name"]


def _datacenter_print(service: Service, _: Arguments) -> Reply:
    return {"text": service.settings.config.datacenter}


async def _drift(service: Service, arguments: Arguments) -> Reply:
    return {"rows": await drift.rows(service, arguments["peer"])}


VERBS = (
    Verb("CONFIG PRINT", "Show the running configuration, as a file", Changes.NOTHING, act=_print),
    Verb(
        "CONFIG RELOAD",
        "Read the file again; changes that were not saved are given up",
        Changes.CONFIGURATION,
        act=_reload,
    ),
    Verb(
        "CONFIG SAVE",
        "Write the running configuration to the file (the old one to FILE.bak)",
        Changes.FILE,
        act=_save,
    ),
    Verb("DATACENTER SET <name>", "Say where this router is", Changes.CONFIGURATION, edit=_datacenter_set),
    Verb("DATACENTER PRINT", "Show where this router is", Changes.NOTHING, act=_datacenter_print),
    Verb(
        "DRIFT [peer...]",
        "Show which sections are not those of the file, or of peers, each HOST:PORT of a router's status page",
        Changes.NOTHING,
        act=_drift,
    ),
)
