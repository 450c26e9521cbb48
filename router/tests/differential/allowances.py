"""What may differ for a client through the router: each difference has a name, both sides of it, and the reason.

The page `docs/what-differs.md` is made from these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amqp_session_router.amqp import codec
from differential.talk import Seen

_HEARTBEAT = 8
CLOSE_OK = codec.CLOSE_OK.to_bytes(4, "big")
_LOST = b"(backend "
"""In the text of the router's own Close where its broker's connection ended."""
_CONNECTION = {number.to_bytes(4, "big"): number for number in (codec.START, codec.TUNE, codec.OPEN_OK, codec.CLOSE)}


@dataclass(frozen=True, slots=True)
class Allowance:
    """A difference that is named. `alike` takes what was seen directly and through the router, and returns both with
    the difference taken out; as they were where there is none."""

    name: str
    directly: str
    routed: str
    reason: str
    alike: Callable[[Seen, Seen], tuple[Seen, Seen]]
    kinds: frozenset[str] | None = None
    """Of cases in which it may be; None: of all."""


def handshake(seen: Seen) -> list[int]:
    """The methods of the handshake that came, in their order; others as 0."""
    return [_CONNECTION.get(payload[:4], 0) if channel == 0 else 0 for _, channel, payload in seen.frames]


def _without_heartbeats(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    one, other = (
        seen._replace(frames=tuple(frame for frame in seen.frames if frame[0] != _HEARTBEAT))
        for seen in (direct, routed)
    )
    return one, other


def _ended_somehow(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    if {direct.end, routed.end} == {"end", "reset"}:
        return direct._replace(end="end"), routed._replace(end="end")
    return direct, routed


def _by_channel(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    one, other = (
        seen._replace(frames=tuple(sorted(seen.frames, key=lambda frame: frame[1]))) for seen in (direct, routed)
    )
    return one, other


def _end_is_said(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    """Through the router a Close 320 before the end, and the Close-Ok for the client's own that crossed it."""
    count = len(direct.frames)
    behind = [payload[:4] for _, _, payload in routed.frames[count:]]
    lost = len(routed.frames) > count and _LOST in routed.frames[count][2]
    answers = {CLOSE_OK}.issuperset(behind[1:])
    if direct.end != "open" and routed.frames[:count] == direct.frames and lost and answers:
        return direct, routed._replace(frames=direct.frames, end=direct.end, rest=direct.rest)
    return direct, routed


def _close_answered(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    if direct.end != "open" and routed.frames[:-1] == direct.frames and routed.frames[-1][2][:4] == CLOSE_OK:
        return direct, routed._replace(frames=direct.frames, end=direct.end)
    return direct, routed


def _told_by_the_router(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    said = handshake(direct)
    answered = [one[2][:4] for one in routed.frames[-1:]]
    closes = {CLOSE_OK, codec.CLOSE.to_bytes(4, "big")}
    alike = routed.frames[:-1] == direct.frames[:-1] and routed.end == direct.end
    if said == [codec.START, codec.TUNE, codec.CLOSE] and alike and closes.issuperset(answered):
        return direct, direct
    return direct, routed


def _once_closed(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    longer, shorter = (direct, routed) if len(direct.frames) > len(routed.frames) else (routed, direct)
    if longer.frames[:-1] == shorter.frames and [one[2] for one in longer.frames[-2:]] == [CLOSE_OK, CLOSE_OK]:
        return direct, direct
    return direct, routed


def _zero_taken(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    said, told = handshake(direct), handshake(routed)
    if said == [codec.START, codec.TUNE] and direct.end != "open" and told[:3] == [*said, codec.OPEN_OK]:
        return direct, direct
    return direct, routed


def _told_tune_first(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    if handshake(direct) == [codec.START, codec.CLOSE] and handshake(routed) == [codec.START, codec.TUNE, codec.CLOSE]:
        return direct, routed._replace(frames=routed.frames[:1] + routed.frames[2:])
    return direct, routed


def _refused_in_words(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    """Directly: silence and an end before Open-Ok. Through the router: a Close, maybe behind a Tune."""
    said, told = handshake(direct), handshake(routed)
    silent = said in ([codec.START], [codec.START, codec.TUNE]) and direct.end != "open"
    in_words = told in ([codec.START, codec.CLOSE], [codec.START, codec.TUNE, codec.CLOSE])
    if silent and in_words:
        return direct, Seen(direct.frames, direct.rest, direct.end)
    return direct, routed


def _ends_at_once(direct: Seen, routed: Seen) -> tuple[Seen, Seen]:
    """Both end before Open-Ok without a word; how far the handshake was is another matter."""
    said, told = handshake(direct), handshake(routed)
    steps = ([], [codec.START], [codec.START, codec.TUNE])
    if said in steps and told in steps and direct.end != "open" and routed.end != "open":
        return direct, direct
    return direct, routed


ALLOWANCES = (
    Allowance(
        "heartbeats",
        "The broker's, in its own rhythm.",
        "The broker's, and the router's own until Open-Ok and while it waits.",
        "They have no content, and their number follows from the time that passes.",
        _without_heartbeats,
    ),
    Allowance(
        "the connection's end",
        "An end of the stream, or a reset where the broker had not read all that the client sent.",
        "The same, not always at the same time.",
        "Which of the two it is depends on what was read by then.",
        _ended_somehow,
    ),
    Allowance(
        "the broker's end is said",
        "The end of the connection, or a reset, without a Close: where the client's own stream ends, RabbitMQ fails at "
        "what it says, or dies.",
        "A Close 320 before it that says so.",
        "A client library reports it as a reason, and connects again.",
        _end_is_said,
    ),
    Allowance(
        "a Close in the handshake is answered",
        "Nothing for three seconds, then the end.",
        "Close-Ok.",
        "The specification has a Close answered at any time.",
        _close_answered,
        frozenset({"too early"}),
    ),
    Allowance(
        "errors before Open are the router's to tell",
        "A Close in the broker's words; to a Close another one (504).",
        "A Close in the router's words; to a Close its Close-Ok.",
        "The broker has not been chosen yet.",
        _told_by_the_router,
        frozenset({"too early"}),
    ),
    Allowance(
        "nothing behind Close-Ok",
        "A second Close, sent behind the first, may get a second Close-Ok.",
        "The connection mostly ends behind the first.",
        "After Close and Close-Ok nothing may follow (specification 2.2.4).",
        _once_closed,
        frozenset({"ends"}),
    ),
    Allowance(
        "Tune-Ok with 0",
        "Refused without a word where the broker has a limit of channels or frames.",
        "Taken as what was offered.",
        "A client that says 0 to an offer takes what there is.",
        _zero_taken,
        frozenset({"tune"}),
    ),
    Allowance(
        "Tune before the login is judged",
        "Start, then Close 403 upon a wrong login.",
        "Start, Tune, then Close 403, in the broker's words.",
        "The broker is chosen by what Open says, so the client is asked for all of it before its login is tried.",
        _told_tune_first,
    ),
    Allowance(
        "refusals in the handshake are said",
        "Nothing for three seconds, then the end: RabbitMQ gives no reason before it knows the client.",
        "A Close that says why, at once.",
        "It tells the client's operator what is wrong. What is refused is the same.",
        _refused_in_words,
    ),
    Allowance(
        "ends without a word in the handshake",
        "The end of the connection after three seconds, or at once.",
        "The end at once, by then with more or less of the handshake said.",
        "Start and Tune are the router's own, which it says before it asks a broker.",
        _ends_at_once,
    ),
    Allowance(
        "order across channels",
        "Each channel's frames in their order; those of different channels in any.",
        "The same.",
        "Each channel is a process of its own in RabbitMQ: two plays at the broker itself differ, too.",
        _by_channel,
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a case was the same; else by which allowances, or (`fault`) by none."""

    used: tuple[str, ...]
    fault: bool


def judge(kind: str, direct: Seen, routed: Seen) -> Verdict:
    """Compare what was seen: to the byte, then with one allowance after the other."""
    used: list[str] = []
    for allowance in ALLOWANCES:
        if direct == routed:
            break
        if allowance.kinds is not None and kind not in allowance.kinds:
            continue
        one, other = allowance.alike(direct, routed)
        if (one, other) != (direct, routed):
            used.append(allowance.name)
            direct, routed = one, other
    return Verdict(tuple(used), direct != routed)
