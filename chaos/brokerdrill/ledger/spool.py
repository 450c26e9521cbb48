"""The form of a spool: a header, and a line of JSON for each write of a client. Writing and reading in one place.

Standard library only and Python >= 3.10: the file is shipped to load hosts as it is. docs/ledger.md is the contract.

The header is an object; it holds what would stand in every row. Every other line is an array, whose first element says
what it is. It needs the header and no other line, so that a file can be read from any line on, and one that was cut off
up to its last whole line. In the place of a text (but a message_id, key or payload_sha of lines 1 and 4) there may be
a number: the place of the text in the header's `texts`; of a `txn` and a `delivery` N it is CLIENT/tN and CLIENT/dN.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from brokerdrill.ledger.contract import OP_COLUMNS, OPS, OUTCOMES

SUFFIX = ".spool"
FORM = 1

# What a line is. Its other elements:
# client, op_id, session, op, start_ns, then columns and values in turn
INTENT = 0
# client, op_id of the first, session, start_ns, address, txn, durable, attempt, late_ns, prefix of the message ids,
# number of the first, producer_seq of the first, keys or null, payload_sha of each, joined by commas
SENDS = 1
# client, op_id, session, op, outcome, start_ns, time until the end in ns, place, then columns and values in turn
END = 2
# client, op_id of the first, session, outcome, place, error, time before the first, then the time of each in ns
SENT = 3
# client, op_id, session, start_ns, time until the end in ns, place, address, message_id, attempt, producer_seq, key,
# redelivered, payload_sha
RECEIVED = 4
KINDS = (INTENT, SENDS, END, SENT, RECEIVED)
# Lines that record operations before their calls.
INTENTS = (INTENT, SENDS)

_COLUMNS = tuple(column.name for column in OP_COLUMNS)
COLUMN_CODES = {name: code for code, name in enumerate(_COLUMNS)}
_OF_CLIENT = {COLUMN_CODES["txn"]: "t", COLUMN_CODES["delivery"]: "d"}
_TEXTS = frozenset(code for code, column in enumerate(OP_COLUMNS) if column.type == "string")

_OP = ("client", "op_id", "session", "op", "outcome", "start_ns")
_INTENT = (*_OP, "protocol")
_PLACE = ("broker", "instance")
_END = (*_OP, "end_ns", *_PLACE)
_SENDS = (
    *_INTENT,
    *("address", "txn", "durable", "attempt", "late_ns", "message_id", "producer_seq", "key", "payload_sha"),
)
_SENT = (*_END, "error")
_RECEIVED = (
    *_END,
    *("delivery", "address", "message_id", "attempt", "producer_seq", "key", "redelivered", "payload_sha"),
)


class Rows(NamedTuple):
    """Rows of operations that fill the same columns, `names`: a tuple of values each."""

    names: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]


class Header:
    """What stands in every row of a spool (`run_id`, `clock`), in every intent (`protocol`), and the texts and places
    (host and instance) that lines name by number."""

    def __init__(
        self,
        run_id: str,
        clock: str,
        protocol: str,
        texts: Iterable[str],
        places: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.run_id, self.clock, self.protocol = run_id, clock, protocol
        self.texts = list(dict.fromkeys([*OPS, *OUTCOMES, *texts]))
        self.places = list(dict.fromkeys((host, instance) for host, instance in places))
        self._codes = {text: str(code) for code, text in enumerate(self.texts)}
        self._places = {place: str(code) for code, place in enumerate(self.places)}

    @classmethod
    def parse(cls, line: str) -> Header:
        """Return the header that a spool's first line says. Raises ValueError where it says none."""
        value = json.loads(line)
        if not isinstance(value, dict) or value.get("spool") != FORM:
            raise ValueError("no header of a spool")
        try:
            made = cls(value["run_id"], value["clock"], value["protocol"], ())
            made.texts = [str(text) for text in value["texts"]]
            made.places = [(str(host), str(instance)) for host, instance in value["places"]]
        except (KeyError, TypeError):
            raise ValueError("no header of a spool") from None
        return made

    def line(self) -> bytes:
        """Return the line that every file of the spool begins with."""
        said = {
            "spool": FORM,
            "run_id": self.run_id,
            "clock": self.clock,
            "protocol": self.protocol,
            "texts": self.texts,
            "places": self.places,
        }
        return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    # --- writing: the JSON of values

    def text(self, text: str) -> str:
        """The JSON of a text: its number, or itself."""
        return self._codes.get(text) or json.dumps(text)

    def place(self, host: str, instance: str) -> str:
        """The JSON of where something was served."""
        return self._places.get((host, instance)) or json.dumps([host, instance])

    # --- reading

    def read_text(self, value: Any) -> Any:
        """The text that a line says."""
        return self.texts[value] if type(value) is int else value

    def served(self, value: Any) -> tuple[str | None, str | None]:
        """The host and the instance that a line says."""
        if value is None:
            return None, None
        if type(value) is int:
            return self.places[value]
        host, instance = value
        return host, instance


def of_client(client: str, kind: str, value: Any) -> Any:
    """The transaction (`kind` t) or delivery (d) that a line says."""
    return f"{client}/{kind}{value}" if type(value) is int else value


def expand(line: Sequence[Any], header: Header) -> Rows:
    """Return the rows that a `line` says, without `run_id` and `clock`.

    Raises ValueError, IndexError, TypeError or KeyError where it is no line of a spool.
    """
    kind = line[0]
    client = header.read_text(line[1])
    if kind == SENDS:
        return _sends(line, client, header)
    if kind == SENT:
        return _sent(line, client, header)
    if kind == RECEIVED:
        _, _, op_id, session, start, lasted, place, address, message_id, attempt, seq, key, flagged, sha = line
        received = (client, op_id, session, "receive", "ok", start, start + lasted, *header.served(place))
        message = (f"{client}/d{op_id}", header.read_text(address), message_id, attempt, seq, key, bool(flagged), sha)
        return Rows(_RECEIVED, [(*received, *message)])
    if kind == INTENT:
        _, _, op_id, session, op, start, *pairs = line
        names, values = _pairs(pairs, client, header)
        row = (client, op_id, session, header.read_text(op), "unknown", start, header.protocol, *values)
        return Rows((*_INTENT, *names), [row])
    if kind == END:
        _, _, op_id, session, op, outcome, start, lasted, place, *pairs = line
        names, values = _pairs(pairs, client, header)
        known = (client, op_id, session, header.read_text(op), header.read_text(outcome), start, start + lasted)
        return Rows((*_END, *names), [(*known, *header.served(place), *values)])
    raise ValueError(f"a line of a spool begins with {kind!r}")


def _pairs(pairs: Sequence[Any], client: str, header: Header) -> tuple[list[str], list[Any]]:
    names, values = [], []
    for code, value in zip(pairs[::2], pairs[1::2], strict=True):
        names.append(_COLUMNS[code])
        if code in _OF_CLIENT:
            value = of_client(client, _OF_CLIENT[code], value)
        elif code in _TEXTS:
            value = header.read_text(value)
        values.append(value)
    return names, values


def _sends(line: Sequence[Any], client: str, header: Header) -> Rows:
    _, _, first, session, start, address, txn, durable, attempt, late, prefix, number, seq, keys, shas = line
    of_all = (session, "send", "unknown", start, header.protocol, header.read_text(address))
    of_batch = (of_client(client, "t", txn), bool(durable), attempt, late)
    prefix = header.read_text(prefix)
    each = shas.split(",")
    if keys is None:
        keys = [None] * len(each)
    return Rows(
        _SENDS,
        [
            (client, first + n, *of_all, *of_batch, f"{prefix}{number + n}", seq + n, key, sha)
            for n, (key, sha) in enumerate(zip(keys, each, strict=True))
        ],
    )


def _sent(line: Sequence[Any], client: str, header: Header) -> Rows:
    _, _, first, session, outcome, place, error, time, *lasted = line
    tail = (*header.served(place), header.read_text(error))
    head = (session, "send", header.read_text(outcome))
    rows = []
    start = time + 1
    for op_id, took in enumerate(lasted, first):
        time += took
        # The next call begins after this one's end, though the clock was read once between them.
        rows.append((client, op_id, *head, start, max(time, start), *tail))
        start = time + 1
    return Rows(_SENT, rows)


def rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows that the whole lines of a spool say, header first, each with the columns that are not null.

    Raises ValueError where the first is no header.
    """
    header: Header | None = None
    for text in lines:
        if header is None or text.startswith("{"):
            header = Header.parse(text)
            continue
        names, found = expand(json.loads(text), header)
        for values in found:
            known = {name: value for name, value in zip(names, values, strict=True) if value is not None}
            yield {"run_id": header.run_id, "clock": header.clock, **known}
