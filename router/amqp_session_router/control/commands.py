"""The control socket: a Unix socket of mode 0600.

A request is one line of JSON, `{"words": [...]}`; the answer is one line, `{"ok": true, ...}` with `rows`, `text` or
`data`, or `{"ok": false, "error": "one sentence"}`. `STAT LISTEN` sends a line every second until the client goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from amqp_session_router.admission.limits import describe
from amqp_session_router.base.errors import RouterError, UsageError, unknown_name
from amqp_session_router.base.model import CONNECTION_FORCED, ClientTls, Identity, Route, ServerTls, Session
from amqp_session_router.config import loader
from amqp_session_router.control import drift, merging, verbs
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs import Arguments, Verb
from amqp_session_router.control.workers import WORDS, Leader
from amqp_session_router.net import tls
from amqp_session_router.selection.rules import first_match
from amqp_session_router.telemetry import metrics

log = logging.getLogger(__name__)

Reply = dict[str, Any]
Handler = Callable[[Arguments], Reply]

_LARGEST_REQUEST = 1024 * 1024
_STREAM_PERIOD = 1.0
_EMPTYING_RATE = 100.0
"""Sessions a second that `BACKEND DISCONNECT_GRACEFUL` ends where it is told no other number."""
_MOST_A_SECOND = 100_000
_BY_CONTROL = "closed by the router's operator"


class Control:
    """The verbs of `verbs.VERBS` on a Service. `call` is all of it but the socket."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._routes = service.routing
        self._handlers: dict[str, Handler] = {
            "AUTH PRINT": self._auth_print,
            "BACKEND PRINT": lambda _: {"rows": metrics.backends(self._routes)},
            "BACKEND FORCE_DISCONNECT <name>": self._on_backend(lambda one: one.force()),
            "BACKEND BACKEND_DISCONNECT <name>": self._on_backend(lambda one: one.disconnect_backend()),
            "CONFIG PRINT": self._config_print,
            "CONN [filter...]": self._conn,
            "DATACENTER PRINT": lambda _: {"text": service.settings.config.datacenter},
            "EXIT [seconds] [grace]": self._exit,
            "FARM PRINT": self._farm_print,
            "HELP": lambda _: {"rows": [{"verb": verb.pattern, "does": verb.help} for verb in verbs.VERBS]},
            "LIMIT PRINT [vhost]": self._limit_print,
            "LISTEN PRINT": self._listen_print,
            "LOG PRINT": lambda _: {"data": service.settings.config.log.model_dump()},
            "MAP PRINT": self._map_print,
            "MAP TEST <vhost> [detail...]": self._map_test,
            "SESSION <id> PRINT": lambda a: {"data": _session_row(self._session(a))},
            "SESSION <id> PAUSE": self._on_session(lambda one: one.pause()),
            "SESSION <id> UNPAUSE": self._on_session(lambda one: one.unpause()),
            "SESSION <id> DISCONNECT_GRACEFUL": self._on_session(_disconnect),
            "SESSION <id> FORCE_DISCONNECT": self._on_session(lambda one: one.force()),
            "SESSION <id> BACKEND_DISCONNECT": self._on_session(lambda one: one.disconnect_backend()),
            "STAT ENABLE <which>": lambda a: self._per_source(a, True),
            "STAT DISABLE <which>": lambda a: self._per_source(a, False),
            "STICKY PRINT": self._sticky_print,
            "STICKY CLEAR <farm>": self._sticky_clear,
            "TLS INGRESS CIPHERS PRINT": lambda _: self._ciphers("ingress"),
            "TLS EGRESS CIPHERS PRINT": lambda _: self._ciphers("egress"),
            "TLS PRINT": self._tls_print,
            "VHOST DISCONNECT_GRACEFUL <vhost>": self._on_vhost(_disconnect),
            "VHOST FORCE_DISCONNECT <vhost>": self._on_vhost(lambda one: one.force()),
            "VHOST BACKEND_DISCONNECT <vhost>": self._on_vhost(lambda one: one.disconnect_backend()),
            "VHOST PRINT": self._vhost_print,
            "WORKERS PRINT": self._workers_print,
        }
        self._awaited: dict[str, Callable[[Arguments], Awaitable[Reply]]] = {
            "BACKEND DISCONNECT_GRACEFUL <name> [rate]": self._empty_backend,
            "CONFIG RELOAD": self._reload,
            "CONFIG SAVE": self._save,
            "DRIFT [peer...]": self._drift,
            "STAT PRINT [filter]": self._stat_print,
            "VHOST PAUSE <vhost>": self._vhost_pause,
            "VHOST UNPAUSE <vhost>": self._vhost_unpause,
        }

    async def call(self, words: Sequence[str]) -> Reply | AsyncIterator[Reply]:
        """Do what `words` say; returns the reply, or replies without end. Raises RouterError with nothing done."""
        verb, arguments = verbs.find(words)
        if verb.pattern == "STAT LISTEN <format> [filter]":
            return self._stat_listen(arguments)
        changes = verb.edit is not None or verb.pattern not in _HARMLESS
        if changes:
            log.info("control: %s", " ".join(words))
        if verb.edit is not None:
            edit = verb.edit
            changed = await self._service.change(lambda data: edit(data, arguments))
            return {"text": _changed(changed)}
        others = self._service.others
        if others is not None and verb.pattern in merging.EACH:
            return await self._by_each(others, verb, arguments, words)
        if others is not None and verb.pattern.startswith("SESSION <id> ") and not self._has(arguments["id"]):
            return await self._by_owner(others, arguments["id"], words)
        return await self._own(verb, arguments)

    async def _own(self, verb: Verb, arguments: Arguments) -> Reply:
        """Do what a verb says in this worker."""
        if verb.pattern in self._awaited:
            return await self._awaited[verb.pattern](arguments)
        return self._handlers[verb.pattern](arguments)

    async def answer(self, what: str, body: bytes) -> bytes:
        """Answer the leader: a verb, or the metrics as a page. Raises RouterError."""
        if what == WORDS:
            verb, arguments = verbs.find(json.loads(body))
            return json.dumps(await self._own(verb, arguments), default=str).encode()
        return await self._service.page(what)

    async def _by_each(self, others: Leader, verb: Verb, arguments: Arguments, words: Sequence[str]) -> Reply:
        """Have each worker do it. A name that any worker knows is none that is wrong."""
        # The others first: once this one is told to leave it may be gone before it has told them.
        answers: list[Reply | RouterError] = [*await others.call(words)]
        try:
            answers.insert(0, await self._own(verb, arguments))
        except UsageError as error:
            answers.insert(0, error)
        wrong = [one for one in answers if isinstance(one, RouterError)]
        for one in wrong:
            if not isinstance(one, UsageError) or len(wrong) == len(answers):
                raise one
        return merging.EACH[verb.pattern]([one for one in answers if not isinstance(one, RouterError)])

    def _has(self, session: str) -> bool:
        return session in self._routes.sessions

    async def _by_owner(self, others: Leader, session: str, words: Sequence[str]) -> Reply:
        answers = await others.call(words)
        for one in answers:
            if isinstance(one, dict):
                return one
        for one in answers:
            if not isinstance(one, UsageError):
                assert isinstance(one, RouterError)
                raise one
        raise _no_session(session)

    # --- configuration ---

    async def _reload(self, _: Arguments) -> Reply:
        return {"text": _changed(await self._service.reload())}

    async def _save(self, _: Arguments) -> Reply:
        await self._service.save()
        return {"text": f"written to {self._service.path}"}

    async def _drift(self, arguments: Arguments) -> Reply:
        return {"rows": await drift.rows(self._service, arguments["peer"])}

    def _config_print(self, _: Arguments) -> Reply:
        return {
            "text": loader.to_yaml(self._service.settings.config).rstrip(),
            "data": loader.to_data(self._service.settings.config),
            "unsaved": self._service.unsaved,
        }

    def _auth_print(self, _: Arguments) -> Reply:
        part = self._service.settings.config.authorization
        return {"text": "every client is allowed"} if part is None else {"data": part.model_dump()}

    def _farm_print(self, _: Arguments) -> Reply:
        rows = []
        for name, part in self._service.settings.config.farms.items():
            farm = self._service.settings.farms[name]
            groups = self._routes.groups(farm)
            rows.append(
                {
                    "name": name,
                    "selector": part.selector,
                    "policies": ", ".join(part.policies),
                    "partitions": " > ".join(", ".join(backend.name for backend in group) for group in groups),
                    "draining": ", ".join(backend.name for backend in farm.members if backend.drain),
                    "key": "" if part.key is None else part.key.type,
                    "quorum": part.quorum,
                    "fallback": part.fallback,
                    "state": self._routes.why_inactive(farm) or "active",
                }
            )
        return {"rows": rows}

    def _limit_print(self, arguments: Arguments) -> Reply:
        return {"rows": describe(self._service.limits, self._service.settings.config.limits, arguments["vhost"])}

    def _listen_print(self, _: Arguments) -> Reply:
        server = self._service.server
        listening = {} if server is None else server.listening()
        return {
            "rows": [
                {
                    "name": listener.name,
                    "host": listener.host,
                    "port": listener.port,
                    "tls": listener.tls is not None,
                    "proxy_protocol": listener.proxy_protocol,
                }
                for listener in listening.values()
            ]
        }

    def _map_print(self, _: Arguments) -> Reply:
        rows = []
        rules = self._service.settings.rules
        for index, rule in enumerate(rules):
            is_default = self._service.settings.config.default is not None and index == len(rules) - 1
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

    def _map_test(self, arguments: Arguments) -> Reply:
        details = _pairs(arguments["detail"], verbs.DETAILS)
        identity = Identity(
            vhost=arguments["vhost"],
            user=details.get("user", ""),
            client_id=details.get("client_id", ""),
            source_ip=details.get("source", ""),
            sni_host=details.get("sni", ""),
            roles=(details["role"],) if "role" in details else (),
            listener=details.get("listener", ""),
        )
        return {"data": explain(self._service, identity)}

    def _sticky_print(self, _: Arguments) -> Reply:
        return {
            "rows": [
                {"farm": name, "keys": len(cache), "timeout": cache.timeout, "file": str(cache.path or "")}
                for name, cache in self._routes.sticky.items()
            ]
        }

    def _sticky_clear(self, arguments: Arguments) -> Reply:
        cache = self._routes.sticky.get(arguments["farm"])
        if cache is None:
            raise UsageError(unknown_name("farm with a cache", arguments["farm"], self._routes.sticky))
        count = cache.clear()
        return {"text": f"{count} keys forgotten", "keys": count}

    def _ciphers(self, side: str) -> Reply:
        shared = self._service.settings.config.tls
        if side == "egress":
            context = tls.client_context(ClientTls(**shared.egress.model_dump()))
        else:
            part = shared.ingress.model_dump()
            # The ciphers can be looked at before there is a certificate.
            context = tls.client_context(ClientTls(verify=False, minimum=part["minimum"], ciphers=part["ciphers"]))
        return {"text": "\n".join(tls.cipher_names(context))}

    def _tls_print(self, _: Arguments) -> Reply:
        settings = self._service.settings
        return {
            "data": {
                **settings.config.tls.model_dump(),
                "listeners": {one.name: _tls_data(one.tls) for one in settings.listeners.values() if one.tls},
                "backends": {one.name: _tls_data(one.tls) for one in settings.backends.values() if one.tls},
            }
        }

    # --- sessions ---

    def _session(self, arguments: Arguments) -> Session:
        found = self._routes.sessions.get(arguments["id"])
        if found is None:
            raise _no_session(arguments["id"])
        return found

    def _on_session(self, act: Callable[[Session], None]) -> Handler:
        def handler(arguments: Arguments) -> Reply:
            session = self._session(arguments)
            act(session)
            return {"text": f"session {session.id}: {session.phase.value}"}

        return handler

    def _conn(self, arguments: Arguments) -> Reply:
        wanted = _pairs(arguments["filter"], ("vhost", "backend", "user", "source", "phase"))
        rows = [_session_row(session) for session in self._routes.sessions.values()]
        return {"rows": [row for row in rows if all(str(row[name]) == value for name, value in wanted.items())]}

    def _on_vhost(self, act: Callable[[Session], None]) -> Handler:
        return lambda arguments: _on_each(self._service.sessions_of(arguments["vhost"]), act)

    def _on_backend(self, act: Callable[[Session], None]) -> Handler:
        return lambda arguments: _on_each(self._backend_sessions(arguments["name"]), act)

    def _backend_sessions(self, name: str) -> list[Session]:
        """Return the sessions of a backend, which may be deleted; raises UsageError if there never was one."""
        sessions = self._service.emptying.sessions_of(name)
        if not sessions and name not in self._routes.settings.backends:
            raise UsageError(unknown_name("backend", name, self._routes.settings.backends))
        return sessions

    async def _empty_backend(self, arguments: Arguments) -> Reply:
        name = arguments["name"]
        rate = _decimal(arguments["rate"] or f"{_EMPTYING_RATE:g}", "a rate")
        if not 0 < rate <= _MOST_A_SECOND:
            raise UsageError(f"a rate is above 0 and at most {_MOST_A_SECOND} sessions a second, not {rate:g}")
        if self._service.others is None:
            self._backend_sessions(name)
            count = self._service.emptying.begin(name, rate)
        else:
            count = await self._empty_everywhere(self._service.others, name, rate)
        return {"text": f"{count} sessions, {rate:g} a second", "sessions": count}

    async def _empty_everywhere(self, others: Leader, name: str, rate: float) -> int:
        """Have each worker disconnect its sessions of a backend at its share of `rate`; returns how many there are."""
        found = _replies(await others.call(["CONN", f"backend={name}"]))
        counts = [len(self._service.emptying.sessions_of(name)), *(len(one["rows"]) for one in found)]
        if not any(counts):
            self._backend_sessions(name)
        own, *theirs = merging.shares(rate, counts)
        total = self._service.emptying.begin(name, own)
        for index, share in enumerate(theirs, 1):
            if not counts[index] and name not in self._routes.settings.backends:
                continue
            words = ["BACKEND", "DISCONNECT_GRACEFUL", name, repr(share)]
            total += json.loads(await others.ask(index, WORDS, json.dumps(words).encode()))["sessions"]
        return total

    async def _vhost_pause(self, arguments: Arguments) -> Reply:
        count = await self._service.pause_vhost(arguments["vhost"])
        return {"text": f"paused, with {count} sessions", "sessions": count}

    async def _vhost_unpause(self, arguments: Arguments) -> Reply:
        if arguments["vhost"] not in self._routes.paused:
            raise UsageError(unknown_name("paused vhost", arguments["vhost"], self._routes.paused))
        going_on, disconnected = await self._service.unpause_vhost(arguments["vhost"])
        return {
            "text": f"{going_on} sessions go on, {disconnected} are mapped elsewhere now and were disconnected",
            "going_on": going_on,
            "disconnected": disconnected,
        }

    def _vhost_print(self, _: Arguments) -> Reply:
        counts = dict.fromkeys(self._routes.paused, 0)
        for session in self._routes.sessions.values():
            if session.identity is not None:
                counts[session.identity.vhost] = counts.get(session.identity.vhost, 0) + 1
        return {
            "rows": [
                {"vhost": vhost, "sessions": count, "paused": vhost in self._routes.paused}
                for vhost, count in sorted(counts.items())
            ]
        }

    # --- the rest ---

    def _workers_print(self, _: Arguments) -> Reply:
        row = {
            "worker": self._service.worker,
            "pid": os.getpid(),
            "uptime": round(metrics.uptime(), 1),
            "sessions": len(self._routes.sessions),
        }
        return {"rows": [row]}

    def _exit(self, arguments: Arguments) -> Reply:
        drain, grace = (
            _decimal(arguments[name] or default, name) for name, default in (("seconds", "30"), ("grace", "0"))
        )
        for name, value in (("seconds", drain), ("grace", grace)):
            if not 0 <= value <= 3600:
                raise UsageError(f"{name} is 0 to 3600 seconds, not {value:g}")
        count = len(self._routes.sessions)
        self._service.exit(drain, grace)
        return {"text": f"leaving{f' in {grace:g} s' if grace else ''}, with {count} sessions", "sessions": count}

    def _per_source(self, arguments: Arguments, on: bool) -> Reply:
        if arguments["which"].lower() != "per-source":
            raise UsageError(f"only per-source can be switched, not {arguments['which']!r}")
        self._routes.statistics.by_source = on
        if not on:
            self._routes.statistics.forget_sources()
        return {"text": f"per-source is {'counted' if on else 'not counted'}"}

    async def _stat_print(self, arguments: Arguments) -> Reply:
        return {"data": await self._service.counts(_filter(arguments))}

    async def _stat_listen(self, arguments: Arguments) -> AsyncIterator[Reply]:
        if arguments["format"].lower() not in ("json", "human"):
            raise UsageError(f"the format is json or human, not {arguments['format']!r}")
        only = _filter(arguments)
        while True:
            yield {"data": await self._service.counts(only), "format": arguments["format"].lower()}
            await asyncio.sleep(_STREAM_PERIOD)


_LOOKS = {"PRINT", "HELP", "CONN", "TEST", "DRIFT"}
_HARMLESS = frozenset(verb.pattern for verb in verbs.VERBS if _LOOKS & {*verb.pattern.split()})
"""Verbs that only look: they are not in the log."""


def _replies(answers: Sequence[Reply | RouterError]) -> list[Reply]:
    """Return the replies; raises RouterError if one is missing."""
    for one in answers:
        if isinstance(one, RouterError):
            raise one
    return [one for one in answers if isinstance(one, dict)]


def _no_session(name: str) -> UsageError:
    return UsageError(f"no session has the id {name!r}; CONN shows them")


def _on_each(sessions: list[Session], act: Callable[[Session], None]) -> Reply:
    for session in sessions:
        act(session)
    return {"text": f"{len(sessions)} sessions", "sessions": len(sessions)}


def _decimal(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{what} is a number, not {text!r}") from None


def _disconnect(session: Session) -> None:
    session.disconnect(CONNECTION_FORCED, _BY_CONTROL)


def _changed(places: Sequence[str]) -> str:
    return f"changed: {', '.join(places)}" if places else "nothing changed"


def _tls_data(part: ClientTls | ServerTls | None) -> dict[str, Any]:
    return {} if part is None else {name: getattr(part, name) for name in part.__slots__}


def _pairs(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return `name=value` words as a map; raises UsageError for one that is none of `names`."""
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name.lower() not in names:
            raise UsageError(f"{word!r} is none of {', '.join(f'{one}=' for one in names)}")
        pairs[name.lower()] = value
    return pairs


def _filter(arguments: Arguments) -> str:
    """Return what `metrics.as_data` takes; raises UsageError."""
    text: str = arguments["filter"] or "overall"
    name, _, value = text.partition("=")
    if text in ("all", "overall", "process") or (name in ("vhost", "backend", "source") and value):
        return text
    raise UsageError(f"{text!r} is none of overall, process, all, vhost=NAME, backend=NAME, source=ADDRESS")


def _session_row(session: Session) -> dict[str, Any]:
    identity = session.identity
    return {
        "id": session.id,
        "phase": session.phase.value,
        "client": session.client,
        "source": "" if identity is None else identity.source_ip,
        "vhost": "" if identity is None else identity.vhost,
        "user": "" if identity is None else identity.user,
        "client_id": "" if identity is None else identity.client_id,
        "target": "" if session.route is None else session.route.target,
        "backend": "" if session.backend is None else session.backend.name,
        "listener": session.listener,
        "age": round(time.time() - session.started, 1),
        "from_client": session.counters.bytes_from_client,
        "from_broker": session.counters.bytes_from_broker,
        "attempts": session.counters.attempts,
    }


def explain(service: Service, identity: Identity) -> dict[str, Any]:
    """Return where a session of `identity` would go, as plain data. No mark is changed and no key remembered."""
    routes = service.routing
    found = first_match(routes.settings.rules, identity)
    decision = routes.plan(identity)
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


class ControlServer:
    """Serves `Control` on a Unix socket of mode 0600.

    It is bound under another name and then renamed, so that it never has another mode, and so that a process that takes
    over replaces the old one's in one step. Only its own socket is removed when it stops.
    """

    def __init__(self, control: Control, path: Path) -> None:
        self._control = control
        self.path = path
        self._server: asyncio.Server | None = None
        self._identity: tuple[int, int] | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, take_over: bool = False) -> None:
        """Listen; raises UsageError if another router answers there (unless `take_over`) or the path cannot be had."""
        if not take_over and await _answers(self.path):
            raise UsageError(f"another router answers at {self.path}")
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if self.path.exists() and not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise UsageError(f"{self.path} is no socket: it stays as it is")
            fresh.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                listener.bind(str(fresh))
            finally:
                os.umask(before)
            found = fresh.stat()
            listener.listen(16)
            listener.setblocking(False)
            fresh.replace(self.path)
        except OSError as error:
            listener.close()
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise UsageError(f"control.socket: {self.path}: {error.strerror or error}") from None
        except UsageError:
            listener.close()
            raise
        self._identity = (found.st_dev, found.st_ino)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LARGEST_REQUEST)

    async def stop(self) -> None:
        """Listen no more, end the clients, remove the socket if it is still ours."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in [*self._clients]:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        with contextlib.suppress(OSError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == self._identity:
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while line := await reader.readline():
                await self._answer(line, reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # the client went, or sent a line without end
        except asyncio.CancelledError:
            pass  # `stop`
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            words = _words(line)
            reply = await self._control.call(words)
            if isinstance(reply, dict):
                await _send(writer, {"ok": True, **reply})
                return
            # A client that is gone is noticed at its end of file, not only when sending fails.
            gone = asyncio.create_task(reader.read(1))
            try:
                async for one in reply:
                    if gone.done():
                        break
                    await _send(writer, {"ok": True, **one})
            finally:
                gone.cancel()
        except RouterError as error:
            await _send(writer, {"ok": False, "error": str(error)})
        except OSError:
            raise
        except Exception:
            log.exception("a control verb failed")
            await _send(writer, {"ok": False, "error": "the router failed to do it; its log says why"})


def _words(line: bytes) -> list[str]:
    try:
        words = json.loads(line)["words"]
    except (ValueError, KeyError, TypeError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError('a request is one line of JSON: {"words": ["HELP"]}')
    return words


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(json.dumps(reply, default=str).encode() + b"\n")
    await writer.drain()


async def _answers(path: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    return True
