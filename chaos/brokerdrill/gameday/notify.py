"""Who hears of a game day: a webhook, a chat that takes Slack's messages, a mail; a heartbeat's service of each one."""

from __future__ import annotations

import smtplib
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.gameday.history import EXPECTED, REFUSED, RUNNING, WORDS, Day
from brokerdrill.gameday.model import GameDay, Heartbeat, Mail, Webhook
from brokerdrill.gameday.pages import PAGE_FILE

TIMEOUT_S = 15
# What a heartbeat's URL ends in, by how a day is; all others are failures.
_BEATS = {RUNNING: "/start", EXPECTED: "", REFUSED: "/log"}


def subject(title: str, day: Day) -> str:
    """Return the message's first line."""
    return f"Game day {title}: {day.word}{', with messages lost or doubled' if day.harmed else ''}"


def text(title: str, day: Day, url: str | None) -> str:
    """Return the whole message in plain words."""
    lines = [subject(title, day)]
    if day.why:
        lines.append(day.why)
    for one in day.drills:
        said = "; ".join(filter(None, (one.harm, one.why)))
        lines.append(f"- {one.drill} on {one.topology}: {WORDS[one.state]}{f' ({said})' if said else ''}")
    if url:
        lines.append(url)
    return "\n".join(lines)


def payload(name: str, title: str, day: Day, url: str | None) -> dict[str, Any]:
    """Return the JSON that a webhook is sent."""
    return {
        "gameday": name,
        "title": title,
        "day": day.id,
        "state": day.state,
        "as_expected": day.state == EXPECTED,
        "why": day.why,
        "began": day.began,
        "ended": day.ended,
        "url": url,
        "drills": [
            {"drill": one.drill, "topology": one.topology, "state": one.state, "run": one.run, "why": one.why}
            | ({"harm": one.harm} if one.harm else {})
            for one in day.drills
        ],
    }


def notify(name: str, plan: GameDay, day: Day) -> list[str]:
    """Notify each channel that asks for it of how `day` ended, and all of a day on which something was lost or came
    twice, as expected or not; return what did not work, a sentence each. No sentence holds a URL or a password."""
    published = plan.publish.url if plan.publish else None
    # The page of this game day, as `pages.publish` places it.
    url = f"{published.rstrip('/')}/{quote(name)}/{PAGE_FILE}" if published else None
    problems = []
    for number, channel in enumerate(plan.notify, start=1):
        if day.state not in channel.when and not day.harmed:
            continue
        if isinstance(channel, Mail):
            why = _tried(_mail, channel, subject(plan.title, day), text(plan.title, day, url))
        else:
            slack = channel.type == "slack"
            body = {"text": text(plan.title, day, url)} if slack else payload(name, plan.title, day, url)
            why = _tried(_post, channel, "", body)
        if why:
            problems.append(f"notification {number} ({channel.type}) was not sent: {why}")
    return problems


def beat(name: str, plan: GameDay, day: Day) -> str | None:
    """Report to the heartbeat's service that `day` begins (RUNNING) or how it ended; return what did not work, without
    the URL; None: it was sent, or there is none."""
    if plan.heartbeat is None:
        return None
    why = _tried(_post, plan.heartbeat, _BEATS.get(day.state, "/fail"), payload(name, plan.title, day, None))
    return f"the heartbeat was not sent: {why}" if why else None


def _tried(send: Callable[..., None], *what: Any) -> str | None:
    """Return why `send` could not send, with no secret in it; None: it did."""
    try:
        send(*what)
    except InfrastructureError as error:
        return str(error)
    except (OSError, smtplib.SMTPException, UnicodeError, httpx.HTTPError, httpx.InvalidURL) as error:
        return type(error).__name__
    return None


def _post(where: Webhook | Heartbeat, ending: str, body: Mapping[str, Any]) -> None:
    target = httpx.URL(where.url or _secret(where.url_file))
    # The ending goes before the parameters that the URL may have.
    target = target.copy_with(path=target.path.rstrip("/") + ending) if ending else target
    answer = httpx.post(target, json=body, timeout=TIMEOUT_S)
    if answer.status_code >= 300:
        raise InfrastructureError(f"it answers with status {answer.status_code}")


def _mail(channel: Mail, first_line: str, body: str) -> None:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = first_line, channel.sender, ", ".join(channel.to)
    message.set_content(body)
    with smtplib.SMTP(channel.host, channel.port, timeout=TIMEOUT_S) as server:
        if channel.starttls:
            server.starttls()
        if channel.user:
            server.login(channel.user, _secret(channel.password_file))
        server.send_message(message)


def _secret(path: Path | None) -> str:
    if path is None:
        raise InfrastructureError("no file is named that holds its secret")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InfrastructureError(f"{path} cannot be read") from None
