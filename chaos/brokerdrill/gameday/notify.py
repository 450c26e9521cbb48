"""Who hears of a game day: a webhook, a chat that takes Slack's messages, a mail."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from brokerdrill.base.errors import InfrastructureError
from brokerdrill.gameday.history import EXPECTED, WORDS, Day
from brokerdrill.gameday.model import GameDay, Mail, Webhook
from brokerdrill.gameday.pages import PAGE_FILE

TIMEOUT_S = 15


def subject(title: str, day: Day) -> str:
    """Return the message's first line."""
    return f"Game day {title}: {day.word}"


def text(title: str, day: Day, url: str | None) -> str:
    """Return the whole message in plain words."""
    lines = [subject(title, day)]
    if day.why:
        lines.append(day.why)
    for one in day.drills:
        lines.append(f"- {one.drill} on {one.topology}: {WORDS[one.state]}{f' ({one.why})' if one.why else ''}")
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
            for one in day.drills
        ],
    }


def notify(name: str, plan: GameDay, day: Day) -> list[str]:
    """Tell each channel that asks to hear of how `day` ended; return what did not work, a sentence each. No sentence
    holds a URL or a password."""
    published = plan.publish.url if plan.publish else None
    # The page of this game day, as `pages.publish` places it.
    url = f"{published.rstrip('/')}/{quote(name)}/{PAGE_FILE}" if published else None
    problems = []
    for number, channel in enumerate(plan.notify, start=1):
        if day.state not in channel.when:
            continue
        try:
            if isinstance(channel, Mail):
                _mail(channel, subject(plan.title, day), text(plan.title, day, url))
            else:
                _post(channel, name, plan.title, day, url)
        except (InfrastructureError, OSError, smtplib.SMTPException, httpx.HTTPError, httpx.InvalidURL) as error:
            why = str(error) if isinstance(error, InfrastructureError) else type(error).__name__
            problems.append(f"notification {number} ({channel.type}) was not sent: {why}")
    return problems


def _post(channel: Webhook, name: str, title: str, day: Day, url: str | None) -> None:
    target = channel.url or _secret(channel.url_file)
    slack = channel.type == "slack"
    body = {"text": text(title, day, url)} if slack else payload(name, title, day, url)
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
