"""All verbs, and how words are recognised as one of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from amqp_session_router.base.errors import UsageError, unknown_name
from amqp_session_router.control.merging import Reply
from amqp_session_router.control.service import Service
from amqp_session_router.control.verbs import (
    auth,
    backend,
    config,
    farm,
    limit,
    listen,
    log,
    map,
    process,
    session,
    stat,
    tls,
)
from amqp_session_router.control.verbs.declaration import Arguments, Changes, Verb


def _help(_: Service, __: Arguments) -> Reply:
    return {"rows": [{"verb": verb.pattern, "does": verb.help} for verb in VERBS]}


_HELP = Verb("HELP", "Show the verbs", Changes.NOTHING, act=_help)
_FAMILIES = (auth, backend, config, farm, limit, listen, log, map, process, session, stat, tls)

VERBS: tuple[Verb, ...] = tuple(
    sorted((_HELP, *chain.from_iterable(module.VERBS for module in _FAMILIES)), key=lambda verb: verb.family)
)
"""By their first word; those of one word in the order of their module."""


def find(words: Sequence[str]) -> tuple[Verb, Arguments]:
    """Return the verb that `words` are, with its arguments; raises UsageError with the forms that come near."""
    fits = [(verb, arguments) for verb in VERBS if (arguments := verb.match(words)) is not None]
    if fits:
        return max(fits, key=lambda fit: fit[0].own_words)
    first = words[0].upper() if words else ""
    families = sorted({verb.family for verb in VERBS})
    if first not in families:
        raise UsageError(unknown_name("verb", first, families) if first else "no verb; HELP shows them")
    same = [verb for verb in VERBS if verb.family == first]
    second = [verb for verb in same if len(words) > 1 and words[1].upper() in verb.pattern.split()]
    raise UsageError(f"no such form; there are: {'; '.join(verb.pattern for verb in second or same)}")
