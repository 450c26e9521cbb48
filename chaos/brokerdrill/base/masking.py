"""Mask the secrets in a text of any format that the products have: configuration, command lines, logs, terms, URLs.

A secret is found by the name before it (`secret_names.py`), and its end by how that is written: an XML attribute, a
line of properties, a quoted key, an option, an Erlang tuple. What shows by its form that it is one (a key in PEM, a
bearer token, an encrypted text, a URL with credentials) is found by that, and a known one by its value. Where a text
can be read in two ways the longer reading is masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from brokerdrill.base.known_secrets import forms
from brokerdrill.base.secret_names import STEMS, is_loose, is_secret

MASK = "*****"
# So far back a name looks for the tag and the quotes that it is in.
_REACH = 4096
# A known secret that is shorter is no more than a word, and masked where it stands alone.
_SHORT = 6

_DOUBLE = r'"(?:[^"\\]|\\.)*"'
# A word of a shell: quoted parts and others, one after the other. A quote that nothing closes is a character.
_WORD = r"""(?:\\.|'[^'\n]*'|"(?:\\.|[^"\\\n])*"|"[^"\n]*"|[^\s\\;&|<>()])++"""
_STEM = re.compile("|".join("".join(f"[{one}{one.upper()}]" for one in stem) for stem in STEMS))
# A longer one is no name.
_NAME_REACH = 128
_OF_NAMES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{2 * _NAME_REACH}}}")
_TAG = re.compile(r"""<([A-Za-z_][\w:.-]*)((?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'))*)\s*(/?)>""")
_ATTRIBUTE = re.compile(r"""([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_CONTENT = re.compile(r"<!\[CDATA\[(.*?)\]\]>|<[^>]*>|([^<]+)", re.S)
# The attributes that name what another attribute, or the element, has as its value; and that attribute.
_NAMING, _VALUE = ("name", "key", "id", "property"), "value"

# What may stand before a name that begins its line: a log's time, a comment's or a list's mark, a word of the shell.
_BEGINS = re.compile(r"[ \t]*(?:\d+\.\d{3}  )?(?:[#;!<>*-]+[ \t]+)*(?:export[ \t]+|set[ \t]+|Environment=)?")
_EQUALS = re.compile(r"[ \t]+=>[ \t]+|[ \t]*=[ \t]*")
_COLON = re.compile(r"[ \t]*:(?!:|//)[ \t]*")
_REST = re.compile(r"(?:\\.|[^\\\n])*", re.S)
_INDENTED = re.compile(r"[ \t]*(?:- +)?(?:[\w.\"'-]+[ \t]*:(?:[ \t]+|(?=\n|$)))?")
_ENTRY = re.compile(r"[ \t]*- +")
_MAPPING = re.compile(r"(?:[ \t]*\n)+[ \t]+[\w.\"'-]+[ \t]*:(?:\s|$)")

_DATA_SEPARATOR = re.compile(r"\s*(?:=>|[:=])\s*")
_COMMA = re.compile(r"\s*,\s*")
_DATA = re.compile(
    rf"""<<"(?P<binary>(?:[^"\\]|\\.)*)"(?:/utf8)?>>|(?P<bytes><<[\d,\s]*>>)|"(?P<double>(?:[^"\\]|\\.)*)"
    |"(?P<unescaped>[^"\n]*)"
    |(?P<list>\[(?:[^\[\]"]|{_DOUBLE})*\])|(?P<mapping>\{{(?:[^{{}}"]|{_DOUBLE})*\}})|(?P<nested>[\[{{])
    |(?P<none>(?:true|false|null|undefined)\b)|(?P<bare>[^\s,;}}\])]+)""",
    re.S | re.X,
)
# A single quote is doubled in YAML and SQL, escaped in Erlang, Python and a database's connection string.
_DOUBLED = re.compile(r"'((?:[^'\n]|'')*?)'(?!')(?=[ \t]*(?:[,;}\])\n]|$))")
_ESCAPED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.S)
# JSON within a string of JSON.
_TWICE = re.compile(r'\\"\s*[:=]\s*\\"((?:\\\\(?:\\.|[^\\])|[^"\\])*)\\"', re.S)
_ADJACENT = re.compile(rf"(?:\s*{_DOUBLE})*", re.S)
_TO_QUOTE = {'"': re.compile(r'(?:[^"\\]|\\.)*', re.S), "'": re.compile(r"[^']*")}
# What a shell joins to it: its quote ends, another one or a backslash has what it could not hold, and it goes on.
_JOINED = {
    '"': re.compile(r"""(?:"(?:'[^'\n]*'|\\.)+"(?:[^"\\]|\\.)*)*""", re.S),
    "'": re.compile(r"""(?:'(?:"[^"\n]*"|\\.)+'[^']*)*"""),
}
_IN_QUOTE = {'"': re.compile(r"""(?:\\.|'[^'"\n]*'|[^\s"\\])+"""), "'": re.compile(r"(?:\\.|[^\s'\\])+")}
_SHELL_WORD = re.compile(_WORD)
_IN_URL = re.compile(r"""(?:[^\s&;#"'<>)]|\)(?![\s"'<>]|$))*""")
_IN_LIST = re.compile(rf"""{_DOUBLE}|'[^'\n]*'|[^\s,;&)}}\]"'<>]+""")
_IN_FLOW = re.compile(r"[^,}\]\n]+")
_HEADER = re.compile(r"(?:(?:basic|bearer|digest|negotiate|ntlm|token)\s+)?[^\s\"']+", re.I)
_PAIR_OF_WORDS = re.compile(rf"[ \t]+({_WORD})[ \t]*(?=\n|$)")
# A statement that a log quotes: PASSWORD '…'.
_SQL = re.compile(r"\s+E?'((?:[^']|'')*)'")
_OPTION = re.compile(rf"[ \t]+({_WORD})")


@dataclass(frozen=True)
class FoundSecret:
    """Where a secret is in a text, and what takes its place."""

    start: int
    end: int
    text: str = MASK


def masked(text: str, known: Iterable[str] = ()) -> str:
    """Return `text` without its secrets; `known` ones are masked wherever they stand, in each way they are escaped."""
    text = _without_known(text, known)
    text = _KEY.sub(MASK, text)
    for form in _FORMS:
        text = form.sub(_last_group_masked, text)
    return _replaced(text, _named(text, inline=False))


def _without_known(text: str, known: Iterable[str]) -> str:
    for form in sorted({form for secret in known for form in forms(secret)}, key=len, reverse=True):
        if form not in text:
            continue
        text = (
            re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text) if len(form) < _SHORT else text.replace(form, MASK)
        )
    return text


def _replaced(text: str, spans: Iterable[FoundSecret]) -> str:
    parts, at = [], 0
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if span.start < at:  # within one that is masked already
            at = max(at, span.end)
            continue
        parts += [text[at : span.start], span.text]
        at = span.end
    return "".join((*parts, text[at:]))


def _last_group_masked(match: re.Match[str]) -> str:
    start, end = match.span(match.lastindex or 0)
    return match.string[match.start() : start] + MASK + match.string[end : match.end()]


def _named(text: str, inline: bool) -> Iterator[FoundSecret]:
    """Yield the values of what is called a secret; `inline`: the text is a part of a line."""
    at = 0
    while stem := _STEM.search(text, at):
        at = stem.end()
        name = _name_around(text, stem)
        if name is None or not is_secret(name[0]):
            continue
        found = [*_value_of(text, name, inline)]
        yield from found
        at = max([name.end(), *(span.end for span in found)])


def _name_around(text: str, stem: re.Match[str]) -> re.Match[str] | None:
    """Return the whole name that `stem` is in."""
    start = stem.start()
    least = max(0, start - _NAME_REACH)
    while start > least and text[start - 1] in _OF_NAMES:
        start -= 1
    return _NAME.match(text, start)


def _value_of(text: str, name: re.Match[str], inline: bool) -> Iterable[FoundSecret]:
    """Return where the value of `name` is; nothing where it has none here."""
    start, end = name.span()
    if tag := _tag_around(text, start):
        return _of_tag(text, tag)
    line = max(text.rfind("\n", max(0, start - _REACH), start) + 1, start - _REACH, 0)
    left = text[line:start]
    before, after = text[start - 1 : start], text[end : end + 1]
    if text[start - 2 : start] == '\\"' and (twice := _TWICE.match(text, end)):
        return [FoundSecret(*twice.span(1))]
    if before in ("'", '"') and after == before:
        return _of_quoted_name(text, name, before)
    option = name[0].startswith("-")
    separator = None if option and text[end : end + 1] in (" ", "\t") else _separator(text, end)
    if before in ("'", '"') and separator:
        return _to_closing_quote(text, separator.end(), before)
    if re.search(r"\{\s*$", left) and (comma := _COMMA.match(text, end)):
        return _data(text, comma.end(), name[0], "'")
    if re.search(r"[{,]\s*$", left) and (arrow := re.compile(r"\s*=>\s*").match(text, end)):
        return _data(text, arrow.end(), name[0], "'")
    if not inline and _BEGINS.fullmatch(left):
        return _of_line(text, name, separator, start - line)
    if separator:
        return _of_assignment(text, name, separator, left)
    word = _OPTION.match(text, end) if option else _SQL.match(text, end)
    return [FoundSecret(*word.span(1))] if word else ()


def _separator(text: str, at: int) -> re.Match[str] | None:
    return _EQUALS.match(text, at) or _COLON.match(text, at)


def _tag_around(text: str, at: int) -> re.Match[str] | None:
    """Return the XML tag that the place `at` is in."""
    opened = text.rfind("<", max(0, at - _REACH), at)
    tag = _TAG.match(text, opened) if opened >= 0 else None
    return tag if tag and tag.end() > at else None


def _of_tag(text: str, tag: re.Match[str]) -> Iterator[FoundSecret]:
    """Yield the secrets in a tag's attributes, and in its element where that is one."""
    attributes = []
    for found in _ATTRIBUTE.finditer(tag[2]):
        group = 2 if found[2] is not None else 3
        attributes.append((found[1], found[group], tag.start(2) + found.start(group)))
    named = is_secret(tag[1]) or any(name in _NAMING and is_secret(value) for name, value, _ in attributes)
    for name, value, start in attributes:
        if (is_secret(name) or (named and name == _VALUE)) and value:
            yield FoundSecret(start, start + len(value))
        else:
            yield from (FoundSecret(start + one.start, start + one.end, one.text) for one in _named(value, inline=True))
    closing = text.find(f"</{tag[1]}", tag.end()) if named and not tag[3] else -1
    if closing >= 0:
        for part in _CONTENT.finditer(text, tag.end(), closing):
            group = 1 if part[1] is not None else 2
            if part[group] and part[group].strip():
                yield FoundSecret(*part.span(group))


def _of_quoted_name(text: str, name: re.Match[str], quote: str) -> Iterable[FoundSecret]:
    """The value of a key in quotes: of JSON, Python, Erlang."""
    left = text[max(0, name.start() - 16) : name.start() - 1].removesuffix("<<").rstrip()
    after = name.end() + 1
    if text.startswith(">>", after):
        after += 2
    separator = _DATA_SEPARATOR.match(text, after) or (_COMMA.match(text, after) if left.endswith("{") else None)
    return _data(text, separator.end(), name[0], quote) if separator else ()


def _data(text: str, at: int, name: str, quote: str = "") -> Iterable[FoundSecret]:
    """The secret that is a value of JSON, YAML within braces, Python or Erlang."""
    if text.startswith("'", at):
        single = _ESCAPED.match(text, at) if quote == "'" or not _DOUBLED.match(text, at) else _DOUBLED.match(text, at)
        return [FoundSecret(*single.span(1))] if single else [_to_end(text, at)]
    value = _DATA.match(text, at)
    if value is None or value.lastgroup in ("none", "nested") or (value.lastgroup == "mapping" and is_loose(name)):
        return ()
    kind = value.lastgroup or ""
    if kind in ("bytes", "list", "mapping", "bare"):
        return [FoundSecret(*value.span(), f'"{MASK}"' if quote == '"' else MASK)]
    adjacent = _ADJACENT.match(text, value.end())
    if kind == "double" and quote != '"' and adjacent and adjacent[0]:
        return [FoundSecret(value.start(), adjacent.end(), f'"{MASK}"')]
    return [FoundSecret(*value.span(kind))]


def _to_end(text: str, at: int) -> FoundSecret:
    end = text.find("\n", at)
    return FoundSecret(at, len(text) if end < 0 else end)


def _to_closing_quote(text: str, at: int, quote: str) -> list[FoundSecret]:
    """The rest of what the quote before its name opened: `"NAME=…"`, and what a shell puts together with it."""
    return [FoundSecret(at, _end(_JOINED[quote], text, _end(_TO_QUOTE[quote], text, at)))]


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where what `pattern` matches at `at` ends; `at` where it does not."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _of_line(text: str, name: re.Match[str], separator: re.Match[str] | None, column: int) -> Iterable[FoundSecret]:
    """The secret of a line of settings: all of the line, and the lines that continue it."""
    if separator is None:
        words = _PAIR_OF_WORDS.match(text, name.end())
        if words:
            return [FoundSecret(*words.span(1))]
        if "." in name[0].strip("-.") and text[name.end() : name.end() + 1] in (" ", "\t"):
            return [_to_end(text, name.end() + 1)]
        option = _OPTION.match(text, name.end()) if name[0].startswith("-") else None
        return [FoundSecret(*option.span(1))] if option else ()
    if name[0].startswith("-"):
        return _of_assignment(text, name, separator, "")
    if is_header(name[0]):
        return [_to_end(text, separator.end())]
    start, end = separator.end(), _end(_REST, text, separator.end())
    value = text[start:end]
    spans = [FoundSecret(start, end)] if value.strip() else []
    if ":" in separator[0]:
        if not spans and is_loose(name[0]) and _MAPPING.match(text, end):
            return ()
        spans += _deeper(text, end, column, block=value.strip()[:1] in ("|", ">"))
    return spans


def _deeper(text: str, at: int, column: int, block: bool = False) -> Iterator[FoundSecret]:
    """Yield what follows in lines that are indented further than `column`: of a mapping or list there its values alone,
    of a `block` of text all."""
    while at < len(text) and text[at] == "\n":
        end = text.find("\n", at + 1)
        end = len(text) if end < 0 else end
        line = text[at + 1 : end]
        if line.strip():
            if len(line) - len(line.lstrip()) <= column:
                return
            key = None if block else _INDENTED.match(line)
            if key and not line[key.end() :].strip():
                # A list's entry that ends in a colon may be a key, or a secret that nobody put into quotes.
                key = _ENTRY.match(line) or key
            start = at + 1 + (key.end() if key else len(line) - len(line.lstrip()))
            if text[start:end].strip():
                yield FoundSecret(start, end)
        at = end


def _of_assignment(text: str, name: re.Match[str], separator: re.Match[str], left: str) -> Iterable[FoundSecret]:
    """The secret of an assignment within a line: an option, a parameter of a URL, a pair of a list, a header."""
    at = separator.end()
    before = left[-1:]
    if is_header(name[0]):
        header = _HEADER.match(text, at) if "authorization" in name[0].lower() else None
        return [FoundSecret(*header.span()) if header else _to_end(text, at)]
    if ":" in separator[0]:
        if text[at : at + 1] in ('"', "'", "<"):
            return _data(text, at, name[0])
        flow = re.search(r"[{,]\s*$", left)
        value = (_IN_FLOW if flow else _IN_LIST).match(text, at)
    elif before in ("?", "&", ";"):
        value = _IN_URL.match(text, at)
    elif before in (",", "{", "(", "["):
        value = _IN_LIST.match(text, at)
    elif quote := _opened(left):
        value = _IN_QUOTE[quote].match(text, at)
    elif text.startswith("'", at) and name[0].islower() and not name[0].startswith("-"):
        value = _ESCAPED.match(text, at)
    else:
        value = _SHELL_WORD.match(text, at)
    return [FoundSecret(*value.span())] if value and value[0] else ()


def is_header(name: str) -> bool:
    """Return whether `name` is a header of HTTP whose value may have several words."""
    return re.fullmatch(r"(?:proxy-)?authorization|(?:set-)?cookie", name, re.I) is not None


def _opened(left: str) -> str:
    """Return the quote that is open at the end of `left`, the beginning of a line; "" where none is."""
    quote, before = "", ""
    for character in left:
        if quote:
            quote = "" if character == quote and before != "\\" else quote
        elif character in "\"'" and not before.isalnum() and before != "\\":
            quote = character
        before = "" if before == "\\" else character
    return quote


_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.S)
# What shows by its form that it is a secret: the last group of each is masked.
_FORMS = (
    # Who is who in a URL; a password in it may have been left as it is.
    re.compile(r"""://[^\s/:@"'<>]*:((?:(?!://)[^\s"'<>])+)@"""),
    re.compile(r"""https?://([^\s/:@"'<>?#]+)@"""),
    re.compile(r"ENC\(([^)\n]*)\)"),
    re.compile(r"Bearer\s+([^\s\"',;]+)"),
    re.compile(r"(eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"),
    # What databases and files of users keep instead of passwords.
    re.compile(r"(SCRAM-SHA-\d+\$[^\s\"']+)"),
    re.compile(r"(?<![\w$])(\$(?:\d|2[abxy]|apr1|argon2\w*|y|scrypt|pbkdf2[\w-]*)\$[^\s:\"']+)"),
    re.compile(r"(?:IDENTIFIED BY|identified by)\s+'((?:[^']|'')*)'"),
    # JAAS: PLAIN and DIGEST-MD5 name their users so.
    re.compile(rf"user_(?!name\b|id\b|agent\b)[\w.@-]+\s*=\s*({_DOUBLE})"),
    # ZooKeeper's client, and its access lists.
    re.compile(rf"addauth\s+digest\s+(?:(?![\"'])[^\s:\"']*:)?({_WORD})"),
    re.compile(r"digest:[^\s:,']+:([^\s:,']+)"),
    # pgpass: host:port:database:user:password.
    re.compile(r"^(?:\\.|[^\s:\\#])+:(?:\d{1,5}|\*):(?:\\.|[^:\s\\])+:(?:\\.|[^:\s\\])+:([^\n]+)$", re.M),
    # Commands that take a password by its place, or by a letter.
    re.compile(rf"(?:add_user|change_password|authenticate_user)(?:\s+--?\S+)*\s+{_WORD}\s+({_WORD})"),
    re.compile(rf"imq\w+\b[^\n]*?\s-p\s+({_WORD})"),
    re.compile(rf"curl\b[^\n]*?\s(?:-u|-U|--user|--proxy-user)[\s=]*(?:(?![\"'])[^\s:\"']*:)?({_WORD})"),
    re.compile(rf"set_cookie\((?:[^(),]*(?:\(\))?\s*,)?\s*({_DOUBLE}|'(?:[^'\\]|\\.)*'|\w+)"),
)
