from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.config.errors import ConfigError
from streamer.config.load import load, validated
from streamer.config.masking import build_option_redactor, holds_secret, sounds_secret
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import render_yaml
from streamer.config.secrets import build_redactor
from streamer.config.settings import resolve

SECRET = "geheim-4711"

odd = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"])
    | st.sampled_from("/:@?#%&=+;,'\"[]()<>$\\"),
    max_size=8,
).filter(lambda text: not any(map(str.isspace, text)))
passwords = st.builds("{}{}{}".format, odd, st.just(SECRET), odd)
#: What may precede a host alone: a ``/`` or a ``:`` ends it.
users = passwords.map(lambda text: text.replace("/", "").replace(":", ""))


def of_url(
    user: st.SearchStrategy[str], password: st.SearchStrategy[str] | None = None
) -> st.SearchStrategy[str]:
    schemes, hosts = st.sampled_from(["http", "https", "s3", "jdbc+x"]), st.just("host:80/x")
    if password is None:
        return st.builds("{}://{}@{}".format, schemes, user, hosts)
    return st.builds("{}://{}:{}@{}".format, schemes, st.just("ann"), password, hosts)


def pipeline(**consumer: object) -> PipelineConfig:
    return validated(
        {
            "source": {"bootstrap_servers": "b:1", "topic": "t", "consumer": consumer},
            "table": {"path": "p", "record_key": "k"},
        }
    )


def test_values_are_found_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    config = pipeline(a=True, b=500, c={"env": "LAKEMARK_TEST"}, d={"file": str(file)}, e="text")
    file.write_text("from a file \n")
    monkeypatch.setenv("LAKEMARK_TEST", "from the environment")
    assert resolve(config.kafka.consumer, "source.consumer") == {
        "a": "true",
        "b": "500",
        "c": "from the environment",
        "d": "from a file ",
        "e": "text",
    }


def test_all_missing_secrets_are_reported(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    config = pipeline(
        a={"env": "LAKEMARK_NOT_SET"}, b={"file": str(tmp_path / "no")}, c={"file": str(binary)}
    )
    with pytest.raises(ConfigError) as raised:
        resolve(config.kafka.consumer, "source.consumer")
    assert str(raised.value).splitlines() == [
        "source.consumer.a: environment variable LAKEMARK_NOT_SET is not set",
        f"source.consumer.b: cannot read {tmp_path}/no: No such file or directory",
        f"source.consumer.c: cannot read {binary}: not UTF-8 text",
    ]
    assert [str(p) for p in config.unresolved()] == str(raised.value).splitlines()


@pytest.mark.parametrize(
    "name",
    """
    sasl.jaas.config|ssl.key.password|ssl.keystore.key|sasl.oauthbearer.client.credentials.secret
    aws_secret_access_key|aws_access_key_id|aws_session_token|account_key|azure_storage_account_key
    google_service_account_key|fs.s3a.secret.key|fs.s3a.access.key|basic.auth.user.info|bearer_token
    spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net|API_KEY|private_key|sas_token|sas_key
    sasl.oauthbearer.assertion|fs.azure.sas.container.account|service_account|keyPassword|apiKey
    google_service_account|fs.s3a.server-side-encryption.key|fs.s3a.encryption.key|trustStorePass
    aws_sse_customer_key_base64|clientKey|sslkeypassword|db.pwd|my.key
    """.replace("\n", "|")
    .replace(" ", "")
    .strip("|")
    .split("|"),
)
def test_nothing_ever_prints_a_secret(name: str, tmp_path: Path) -> None:
    assert sounds_secret(name)
    config = pipeline(**{name: SECRET})
    for printed in (render_yaml(config), repr(config), str(config), str(config.model_dump())):
        assert SECRET not in printed
    assert config.kafka.consumer[name].resolve() == SECRET
    file = tmp_path / "p.yaml"
    file.write_text("source: {bootstrap_servers: b, topic: t}\ntable: {path: p, record_key: k}")
    with pytest.raises(ConfigError) as raised:
        load(str(file), [f"source.consumer.{name}=[{SECRET}]", f"table.{name}={SECRET}"])
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    """
    max.poll.records aws_endpoint key.order fetch.max.bytes record_key tombstone_key partition.key
    ssl.keystore.location ssl.keystore.type ssl.truststore.location spark.ssl.keyStore monkey
    sasl.mechanism sasl.kerberos.service.name ssl.keymanager.algorithm bypass design
    spark.io.encryption.keySizeBits spark.kubernetes.authenticate.driver.serviceAccountName
    """.split(),
)
def test_values_that_are_not_secret_are_shown(name: str) -> None:
    assert f"{name}: '5'" in render_yaml(pipeline(**{name: 5}))


@pytest.mark.parametrize(
    "text",
    [
        f"-XX:+UseG1GC -Djavax.net.ssl.trustStorePassword={SECRET}",
        f"https://user:{SECRET}@host/x",
        f"https://account.blob/container?sv=1&sig={SECRET}",
        f"user:{SECRET}@proxy:3128",
        f"proxy:3128,user:{SECRET}@other:3128",
        f'{{"type": "x", "private_key": "{SECRET}"}}',
        f"-Dfs.encryption.key={SECRET}",
        f"org.apache.Module required username=u password='{SECRET}';",
        f"http://{SECRET}@registry:8081",
        f"-Dhttp.proxy=http://{SECRET}@proxy:3128",
        f"http://user:4/{SECRET}@host",
        f"http://ann@corp.org:/{SECRET}@host/x",
    ],
)
def test_a_secret_under_a_harmless_name_is_masked(text: str, tmp_path: Path) -> None:
    assert holds_secret(text)
    assert SECRET not in render_yaml(pipeline(options=text))
    file = tmp_path / "p.yaml"
    file.write_text("source: {bootstrap_servers: b, topic: t}\ntable: {path: p, record_key: k}")
    with pytest.raises(ConfigError) as raised:
        load(str(file), [f"name=[{json.dumps(text)}]"])
    assert SECRET not in str(raised.value)


@given(of_url(users) | of_url(users, passwords))
def test_no_url_shows_its_password_or_token_whatever_characters_it_has(url: str) -> None:
    config = pipeline(options=f"-Da=b -Dproxy={url}")
    assert SECRET not in render_yaml(config)
    for take_out in (build_redactor(config), build_redactor(pipeline()), build_option_redactor([])):
        for text in (url, f"{url}: refused", f"cannot connect to '{url}', 3 times", f"<{url}>"):
            assert SECRET not in take_out(text)


@given(passwords)
def test_a_password_of_a_url_is_not_shown_without_the_url_either(password: str) -> None:
    config = pipeline(proxy=f"http://user:{password}@proxy:3128")
    for shown in (password, unquote(password)):
        assert SECRET not in build_redactor(config)(f"the proxy refused {shown} of user")


@pytest.mark.parametrize(
    "text",
    [
        "abfss://container@account.dfs.core.windows.net/x: no such file",
        "s3://lake/orders/_at=2026@noon: no such file",
        "https://registry:8081/subjects is away; ask ann@corp.org",
        "topic@3 of broker:9092",
    ],
)
def test_paths_are_shown_in_messages(text: str) -> None:
    assert build_redactor(pipeline())(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "/etc/secrets/kafka.jks",
        "file:/run/secrets/kafka.jks",
        "org.apache.kafka.common.security.OAuthBearerTokenHandler",
        "-XX:+UseG1GC -Da=b",
        "https://host:8081/x",
        "abfss://container@account.dfs.core.windows.net/x",
        "proxy:3128,other:3128",
        "record_key=5",
    ],
)
def test_paths_and_class_names_are_not_masked(text: str) -> None:
    assert text in render_yaml(pipeline(options=text))


@pytest.mark.parametrize("setting", ["source.consumer", "table.storage", "spark.conf"])
@pytest.mark.parametrize("value", [SECRET, f"[{SECRET}]", f"{{harmless: [{SECRET}]}}"])
def test_settings_in_the_wrong_shape_are_not_shown(
    setting: str, value: str, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("source: {bootstrap_servers: b:1, topic: t}\ntable: {path: p, record_key: k}")
    with pytest.raises(ConfigError, match=f"{setting}: ") as raised:
        load(str(file), [f"{setting}={value}"])
    assert SECRET not in str(raised.value)


def test_a_name_with_its_value_in_it_is_shown_without() -> None:
    tree = {
        "source": {"bootstrap_servers": "b:1", "topic": "t", f"password={SECRET}": None},
        "table": {"path": "p", "record_key": "k", "storage": {f"password: {SECRET}": None}},
    }
    with pytest.raises(ConfigError) as raised:
        validated(tree)
    assert [str(problem).partition(":")[0] for problem in raised.value.problems] == [
        "source.password",
        "table.storage",
    ]
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("value", [None, [1], {}, {"env": ""}, {"env": 5}, {"enw": "X"}])
def test_a_setting_is_a_value_or_says_where_it_is(value: object) -> None:
    with pytest.raises(ConfigError, match=r"expected a value, \{env: NAME\} or \{file: PATH\}"):
        pipeline(a=value)


def test_properties_that_others_decide_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"auto\.offset\.reset is set by source\.starting_offsets"
    ):
        pipeline(**{"auto.offset.reset": "latest"})
    with pytest.raises(ConfigError, match=r"omit the prefix; write ssl\.protocol"):
        pipeline(**{"kafka.ssl.protocol": "TLS"})
