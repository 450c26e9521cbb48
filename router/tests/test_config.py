"""Configuration files: what a good one means, and the one sentence for each bad one."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from amqp_session_router import cli
from amqp_session_router.base.errors import UsageError
from amqp_session_router.base.model import Backend
from amqp_session_router.config import loader
from amqp_session_router.config.schema import Config
from amqp_session_router.selection.rules import ToFarm

BACKENDS = "backends: {r1: {host: h1}, r2: {host: h2}}\n"

BAD = {
    case["what"]: (case["text"], case["sentence"])
    for case in yaml.safe_load(Path(__file__).with_name("bad_configs.yaml").read_text("utf-8"))
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_says_why_and_where_in_one_sentence(what: str) -> None:
    text, sentence = BAD[what]
    with pytest.raises(UsageError) as caught:
        loader.parse(text, "x.yaml")
    assert str(caught.value) == sentence


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        loader.load(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="Is a directory"):
        loader.load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match="byte 3 is not UTF-8"):
        loader.load(tmp_path / "latin.yaml")


@given(st.text())
def test_any_text_is_good_or_a_sentence(text: str) -> None:
    try:
        loader.parse(text)
    except UsageError as error:
        assert "\n" not in str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(Config.model_fields)) | st.text(max_size=5), JSON, max_size=4))
def test_any_data_is_good_or_a_sentence(data: dict[str, object]) -> None:
    try:
        loader.from_data(data)
    except UsageError as error:
        assert str(error)


def test_an_empty_file_is_a_router_that_does_nothing() -> None:
    settings = loader.parse("")
    assert (settings.listeners, settings.backends, settings.rules) == ({}, {}, ())


def test_words_that_yaml_takes_for_booleans_are_vhosts() -> None:
    rules = loader.parse("rules: [{vhost: off, reject: no}, {vhost: yes, reject: no}]").rules
    assert [rule.vhost for rule in rules] == ["off", "yes"]


def test_the_default_is_the_last_rule() -> None:
    settings = loader.parse(
        BACKENDS + "farms: {e: {members: [r1]}}\nrules: [{vhost: a, reject: no}]\ndefault: {farm: e}"
    )
    assert settings.rules[-1].to == ToFarm("e")


def test_the_example_shows_every_setting() -> None:
    text = cli.example()
    settings = loader.parse(text)
    assert settings.backends["rabbit1"] == Backend("rabbit1", "rabbit1.example.org", 5672, "fra")
    missing = [name for name in _names(Config) if f"{name}:" not in text]
    assert not missing


def _names(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, info in model.model_fields.items():
        found.add(name)
        for part in _models(info.annotation):
            found |= _names(part)
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for one in getattr(annotation, "__args__", ()) for model in _models(one)]


def test_the_published_schema_is_the_models_and_takes_the_example() -> None:
    published = files("amqp_session_router.config").joinpath("config.schema.json").read_text("utf-8")
    assert published == loader.json_schema(), "amqp-session-router schema > config.schema.json"
    schema = json.loads(published)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(cli.example()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"farm": {}}, schema)


def test_every_setting_is_described() -> None:
    for model in {part for name in Config.model_fields for part in _all(Config)}:
        for name, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{name}"


def _all(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for info in model.model_fields.values():
        for part in _models(info.annotation):
            found |= _all(part)
    return found


def test_what_is_written_is_read_as_the_same() -> None:
    settings = loader.parse(cli.example())
    again = loader.parse(loader.to_yaml(settings.config))
    assert again.config == settings.config
    assert (again.rules, again.farms) == (settings.rules, settings.farms)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(cli.example())
    bad.write_text("farm: {}")
    assert cli.main(["check", str(good)]) == 0
    assert "good (2 listeners, 3 backends, 3 farms, 6 rules)" in capsys.readouterr().out
    assert cli.main(["check", str(bad)]) == 64
    assert capsys.readouterr().err == f"amqp-session-router: {bad}:1: farm: no such key; did you mean 'farms'?\n"
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Config"
    with pytest.raises(SystemExit) as caught:
        cli.main(["chekc"])
    assert caught.value.code == 64


OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=router"


def test_certificates_are_loaded_when_the_file_is_checked(tmp_path: Path) -> None:
    cert = tmp_path / "c.pem"
    for name in ("router", "other"):
        files_out = f"-keyout {tmp_path}/{name}.key -out {tmp_path}/{name}.pem"
        subprocess.run(f"{OPENSSL} {files_out}".split(" "), check=True, capture_output=True)
    shared = f"tls: {{ingress: {{cert_file: {tmp_path}/router.pem, key_file: {tmp_path}/router.key}}}}\n"
    listener = loader.parse(shared + "listeners: {s: {port: 5671, tls: {minimum: '1.3'}}}").listeners["s"]
    assert listener.tls is not None
    assert (listener.tls.cert_file, listener.tls.minimum) == (f"{tmp_path}/router.pem", "1.3")
    with pytest.raises(UsageError, match=r"listeners\.s\.tls: .*router\.pem and its key do not load: KEY_VAL"):
        loader.parse(f"{shared}listeners: {{s: {{tls: {{key_file: {tmp_path}/other.key}}}}}}")
    with pytest.raises(UsageError, match="client certificates cannot be verified without ca_file"):
        loader.parse(shared + "listeners: {s: {tls: {client_cert: required}}}")
    with pytest.raises(UsageError, match="OpenSSL knows no cipher of 'NONSENSE'"):
        loader.parse("backends: {r: {host: h, tls: {ciphers: NONSENSE}}}")
    cert.write_text("no certificate")
    with pytest.raises(UsageError, match=r"backends\.r\.tls: .*c\.pem holds no certificate"):
        loader.parse(f"backends: {{r: {{host: h, tls: {{ca_file: {cert}}}}}}}")
