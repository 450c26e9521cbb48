"""No secret survives in any format that the products have, whatever its characters are; and the rest stays."""

from __future__ import annotations

import base64
import json
import re
import shlex
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerdrill.base.known_secrets import forms, secret_values
from brokerdrill.base.masking import MASK, masked
from brokerdrill.base.secret_names import is_secret


def backslashed(*characters: str) -> Callable[[str], str]:
    """Escape with a backslash, as a format does that has to."""
    return lambda text: re.sub(f"[{re.escape(''.join(characters))}\\\\]", lambda one: "\\" + one[0], text)


def java_properties(text: str) -> str:
    escaped = re.sub(r"[\\:=#!]", lambda one: "\\" + one[0], text)
    return re.sub(r"^ +", lambda one: one[0].replace(" ", "\\ "), escaped)


def doubled(text: str) -> str:
    return text.replace("'", "''")


def plain(text: str) -> str:
    return text


def url(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def single_quoted(text: str) -> str:
    """Within single quotes of a shell, which have none."""
    return text.replace("'", "'\"'\"'")


def json_in_json(text: str) -> str:
    return json.dumps(json.dumps(text)[1:-1])[1:-1]


def conninfo(text: str) -> str:
    return "'" + backslashed("'")(text) + "'"


def python(text: str) -> str:
    return repr({"password": text})


@dataclass(frozen=True)
class Format:
    """How a format has a secret: `@` of `text` becomes the escaped one. All else of the text has to stay."""

    text: str
    escape: Callable[[str], str]
    # What its grammar cannot hold at all.
    without: str = ""
    # A line that ends in a backslash goes on in the next one, to others than its own format: that is masked as well.
    continued: bool = False


dq = backslashed('"')
FORMATS = {
    "an XML attribute": Format('<user name="bob" password=@ roles="admins"/>', quoteattr),
    "XML, single quotes": Format("<user password='@' name='bob'/>", lambda text: escape(text, {"'": "&apos;"})),
    "an XML element": Format("<a><cluster-password>@</cluster-password><b>north</b></a>", escape),
    "CDATA": Format("<keyPassword><![CDATA[@]]></keyPassword><b>north</b>", plain, without="]"),
    "a named property": Format('<property name="dbPassword" value=@/><property name="url" value="x"/>', quoteattr),
    "its value first": Format('<property value=@ name="dbPassword"/><property name="url" value="x"/>', quoteattr),
    "a property's element": Format('<property name="pwd"><value>@</value></property><b>c</b>', escape),
    "an entry": Format('<entry key="apiKey">@</entry><entry key="port">61616</entry>', escape),
    "a tag on many lines": Format('<bean\n  user="bob"\n  password=@\n  port="1"/>', quoteattr),
    "Java properties": Format("host=north\nkey.store.password=@\nport=61616", java_properties),
    "properties with spaces": Format("host = north\n  db.password = @\nport = 61616", java_properties),
    "properties with a colon": Format("host: north\ndb.password: @\nport: 61616", java_properties),
    "properties without a sign": Format("host north\ndb.password @\nport 61616", java_properties),
    "imqbroker's passfile": Format("imq.imqcmd.password=@\nimq.broker=north", java_properties),
    "zoo.cfg": Format(
        "tickTime=2000\nDigestAuthenticationProvider.superDigest=super:@\nclientPort=2181", java_properties
    ),
    "rabbitmq.conf": Format("listeners.ssl.default = 5671\ndefault_pass = @\nvm_memory = 0.6", plain, continued=True),
    "rabbitmq.conf, commented": Format("# ssl_options.password = @\nvm_memory = 0.6", plain, continued=True),
    "an environment file": Format("JAVA_HOME=/opt\nDB_PASSWORD=@\nPORT=1", shlex.quote),
    "a unit": Format('Environment="DB_PASSWORD=@"\nEnvironment="PORT=1"', dq),
    "a JVM option": Format("java -Xmx1g -Dkeystore.password=@ -jar north.jar", shlex.quote),
    "a quoted JVM option": Format("java -Xmx1g '-Dkeystore.password=@' -jar north.jar", single_quoted),
    "a JVM option in double quotes": Format('java "-DtrustStorePassword=@" -jar north.jar', dq),
    "an option": Format("artemis queue --password @ --url tcp://h", shlex.quote),
    "an option with =": Format("artemis queue --password=@ --url tcp://h", shlex.quote),
    "keytool": Format("keytool -list -storepass @ -keystore north", shlex.quote),
    "imqusermgr": Format("imqusermgr add -u bob -p @ -g admin", shlex.quote),
    "rabbitmqctl": Format("rabbitmqctl -n x add_user bob @ && echo north", shlex.quote),
    "curl": Format("curl -s -u bob:@ http://north/", shlex.quote),
    "a cookie's option": Format("erl -sname a -setcookie @ -noshell", shlex.quote),
    "the cookie of a process": Format("RABBITMQ_ERLANG_COOKIE=@\nHOME=/x", shlex.quote),
    "YAML, plain": Format("user: bob\npwd: @\nport: 1", plain, without="#", continued=True),
    "YAML, single quotes": Format("user: bob\napi_key: '@'\nport: 1", doubled),
    "YAML, double quotes": Format("user: bob\n- secret: \"@\"\n  port: 1", dq),
    "YAML, a block": Format("a:\n  password: |\n    @\n    more\n  port: 1", plain),
    "YAML, in braces": Format("{user: bob, password: '@', port: 1}", doubled),
    "YAML, in braces, double": Format('{user: bob, password: "@", port: 1}', dq),
    "YAML, a list": Format("passwords:\n  - @\n  - second\nport: 1", plain),
    "YAML, a mapping": Format("passwords:\n  bob: @\n  amy: second\nport: 1", plain),
    "JSON": Format('{"user": "bob", "password": @, "port": 1}', json.dumps),
    "JSON, Unicode": Format('{"user": "bob", "apiKey":@,"port": 1}', lambda t: json.dumps(t, ensure_ascii=False)),
    "JSON, pretty": Format('{\n  "password_hash": @,\n  "port": 1\n}', json.dumps),
    "JSON, a list": Format('{"secrets": [@, "x"], "port": 1}', json.dumps),
    "JSON in JSON": Format('{"said": "{\\"password\\": \\"@\\", \\"port\\": 1}"}', json_in_json),
    "Python": Format("north @ south", python),
    "Erlang, a binary": Format("[{default_user, <<\"bob\">>}, {default_pass, <<\"@\">>}, {port, 1}].", dq),
    "Erlang, a string": Format('[{password, "@"},\n {port, 1}].', dq),
    "Erlang, an atom": Format("[{cookie,'@'}, {port, 1}].", backslashed("'")),
    "Erlang, a map": Format('#{<<"user">> => <<"bob">>, <<"password">> => <<"@">>, port => 1}', dq),
    "Erlang, a map of atoms": Format('#{password => "@", port => 1}', dq),
    "Erlang, a key in quotes": Format('[{"password", "@"}, {"port", 1}].', dq),
    "Erlang, numbers": Format("{client_secret,<<@>>}. {port, 1}", lambda t: ",".join(map(str, t.encode()))),
    "Erlang, set_cookie": Format("erlang:set_cookie(node(), '@'), north", backslashed("'")),
    "JAAS": Format('Client {\n  Plain required\n  username="bob"\n  password="@";\n};', dq),
    "JAAS, one line": Format('Plain required username="bob" password="@" serviceName="x";', dq),
    "JAAS, users": Format('Server {\n  Digest required\n  user_bob="@";\n};', dq),
    "a URL": Format("amqp://bob:@@north:5672/vhost", url),
    "a URL as people write it": Format("amqp://bob:@@north:5672/vhost", plain, without=" \"'<>"),
    "a URL's parameter": Format("tcp://h:1?ssl=true;keyStorePassword=@;protocols=CORE", url),
    "a URL's parameter in XML": Format(
        '<acceptor name="a">tcp://h:1?ssl=true&amp;trustStorePassword=@&amp;protocols=CORE</acceptor>',
        url,
    ),
    "JDBC": Format("jdbc:postgresql://h/db?user=bob&password=@&ssl=true", url),
    "a connection string": Format("host=north password=@ port=5432", conninfo),
    "pgpass": Format("north:5432:db:bob:@\nsouth", backslashed(":")),
    "pg_hba": Format('host all all 0.0.0.0/0 ldap ldapbindpasswd="@" ldapport=389', plain, without='"'),
    "SQL": Format("ALTER ROLE bob WITH PASSWORD '@' VALID UNTIL x", doubled),
    "Authorization": Format("GET / HTTP/1.1\nAuthorization: Basic @\nHost: north", in_base64),
    "a bearer": Format("> Authorization: Bearer @\n> Host: north", plain),
    "a bearer in a log": Format("asked with Bearer @ of north", in_base64),
    "a header of curl": Format("curl -H 'X-Api-Key: @' http://north", single_quoted),
    "a cookie of HTTP": Format("Set-Cookie: id=@; Path=/\nHost: north", url),
    "PEM": Format(
        "-----BEGIN EC PRIVATE KEY-----\n@\n-----END EC PRIVATE KEY-----\nnorth",
        lambda text: base64.encodebytes(text.encode()).decode(),
    ),
    "an encrypted text": Format("user = ENC(@) north", in_base64),
    "ZooKeeper's addauth": Format("addauth digest bob:@", shlex.quote),
}  # fmt: skip
ODD = st.text("ab0Z \"'\\/&<>;:,=#!$%`~^|@?*()[]{}+-._äß世😀", min_size=6, max_size=30).filter(
    lambda text: text.strip() == text
)


def unquoted(text: str) -> str:
    """Which quotes a secret has depends on its characters."""
    return re.sub(r"""["']?\*{5}["']?""", MASK, text)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_masked_says_nothing_of_the_secret(name: str) -> None:
    """The masked text is the same whatever the secret was, and has all else in it."""
    one = FORMATS[name]
    rest = re.findall(r"north|port|bob|second\b(?=zzz)|61616|url", one.text)

    @settings(max_examples=30, deadline=None)
    @given(ODD)
    @example(r"R&D<4ever>\1")
    @example(r"Tr0ub\4dor, &3")
    @example("it's\\me")
    @example("a\"b, token: 'c")
    @example("a' b=c")
    @example("ends with \\")
    @example("${x} $y %z% `w`")
    @example("p@ss:w/rd?#;&")
    @example("Grüße, 世界")
    @example("- 0000")
    @example("00000:")
    def nothing(secret: str) -> None:
        written = "".join(character for character in secret if character not in one.without)
        written = written.rstrip("\\") if one.continued else written
        if len(written) < 6 or written.strip() != written:
            return
        found = masked(one.text.replace("@", one.escape(written), 1))
        expected = masked(one.text.replace("@", one.escape("w x'y\\z" if not one.without else "wxyz_12"), 1))
        assert unquoted(found) == unquoted(expected)
        assert MASK in found
        assert [word for word in rest if word not in found] == []

    nothing()


@pytest.mark.parametrize(
    "text",
    [
        '<property name="brokerName" value="artemis1"/>',
        "<max-size-bytes>10485760</max-size-bytes>",
        "tcp://artemis1:61616?tcpNoDelay=true;protocols=CORE",
        "the compass shows north, and passive: 2 of 3 bypass it",
        '{"username": "drill", "port": 61616, "keys": [1, 2], "monkey": "x"}',
        '{"credentials": {"file": "/etc/brokerdrill/artemis1.credentials.json"}}',
        '{\n  "credentials": {\n    "file": "/etc/brokerdrill/a.json"\n  },\n  "port": 1\n}',
        "credentials:\n  file: /etc/brokerdrill/a.json\nport: 1",
        "imq.passfile.enabled=true\nimq.passfile.name=passfile",
        "password_encryption = scram-sha-256",
        "ssl_options.keyfile = /etc/brokerdrill/tls/a.pem",
        "ssl.keyStore.location=/etc/brokerdrill/tls/a.pem\nssl.quorum.keyStore.type=PEM",
        "[{default_user, <<\"bob\">>}, {tcp_listeners, [5672]}].",
        "hostssl all all 10.0.0.0/8 scram-sha-256",
        "ssh://git@north/x and http://north:8161/console, 12:30:01 to 12:31:00",
        "java -Xmx1g -Dcom.sun.management.jmxremote.ssl=true -cp /a:/b org.north.Main --config x.yml",
        "AMQ224097: token ring, the key of the map, a secretary and authorization by roles",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "tokenTimeToLive path=/a keyless",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True), ("keyStorePassword", True), ("DB_PASSWORD", True), ("storepass", True), ("pwd", True),
        ("superDigest", True), ("x-api-key", True), ("apiKey", True), ("private_key", True), ("-setcookie", True),
        ("password_hash", True), ("ssl.quorum.keyStore.password", True), ("userPassword1", True), ("passin", True),
        ("password_file", False), ("passfile", False), ("passive", False), ("compass", False), ("routing-key", False),
        ("key", False), ("digest", False), ("sha256digest", False), ("tokenExpirationSeconds", False), ("", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


@settings(max_examples=100, deadline=None)
@given(ODD)
@example(r"R&D<4ever>\1 & 'x' \"y\" 100%")
def test_a_known_secret_is_masked_however_it_is_escaped(secret: str) -> None:
    escapes = [
        plain, escape, quoteattr, json.dumps, repr, shlex.quote, doubled, java_properties, urllib.parse.quote_plus,
        url, lambda text: escape(json.dumps(text)),
        lambda text: json.dumps(escape(text)), in_base64,
    ]  # fmt: skip
    for change in escapes:
        found = masked(f"it said ({change(secret)}) at north", [secret])
        assert re.fullmatch(r"""it said \(["']?\*{5}["']?\) at north""", found), found


def test_a_short_known_secret_is_masked_where_it_stands_alone() -> None:
    assert masked("they said amy4 to gamy41", ["amy4"]) == f"they said {MASK} to gamy41"
    assert forms("amy") == set()


def test_the_secrets_of_variables() -> None:
    variables = {
        "a_password": "one", "users": [{"name": "bob", "password": "two"}], "b_token": "{{ lookup('x') }}",
        "passwords": {"amy": "three"}, "c_secret": "$ANSIBLE_VAULT;1.1;AES256", "port": 1, "password_file": "/etc/x",
    }  # fmt: skip
    assert sorted(secret_values(variables)) == ["one", "three", "two"]
