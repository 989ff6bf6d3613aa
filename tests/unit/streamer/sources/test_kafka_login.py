"""Logins with tokens: the properties of both clients, from one set of properties."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import ValidationError

from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.secrets import build_redactor
from streamer.sources.consumer_properties import read_consumer
from streamer.sources.kafka_login import java_properties
from streamer.sources.librdkafka_settings import NotTranslatable, client_settings
from streamer.sources.msk_token import MskToken
from streamer.sources.topic_client import TopicClient

OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    "sasl.oauthbearer.client.id": "lakemark",
    "sasl.oauthbearer.client.secret": 'a "b\\',
}
MSK = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
BROKERS = "b-1.lake.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"


def source(consumer: dict[str, Any]) -> KafkaSourceConfig:
    given = {"bootstrap_servers": "h:1", "topic": "orders", "consumer": consumer}
    return KafkaSourceConfig.model_validate(given)


def test_login_by_oidc_is_translated_for_java() -> None:
    more = {
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "pool=p1,cluster=c1",
        "https.ca.location": "/etc/ca.pem",
        "fetch.min.bytes": "1",
    }
    oauth = "org.apache.kafka.common.security.oauthbearer"
    assert java_properties({**OIDC, **more}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
        "sasl.login.connect.timeout.ms": "10000",
        "sasl.login.read.timeout.ms": "10000",
        "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": (
            f'{oauth}.OAuthBearerLoginModule required clientId="lakemark" '
            'clientSecret="a \\"b\\\\" scope="a b" extension_pool="p1" extension_cluster="c1" '
            'ssl.truststore.location="/etc/ca.pem" ssl.truststore.type="PEM";'
        ),
        "fetch.min.bytes": "1",
    }


def test_login_by_oidc_is_passed_to_librdkafka() -> None:
    found = client_settings("h:1", OIDC)
    assert {name: found[name] for name in OIDC} == OIDC
    with pytest.raises(NotTranslatable, match=r"sasl\.login\.refresh\.window\.factor"):
        client_settings("h:1", {**OIDC, "sasl.login.refresh.window.factor": "0.5"})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sasl.oauthbearer.method": None}, "client.id is only for sasl.oauthbearer.method: oidc"),
        ({"sasl.oauthbearer.method": "jwt"}, "sasl.oauthbearer.method must be oidc"),
        ({"sasl.mechanism": "PLAIN"}, "oidc needs sasl.mechanism: OAUTHBEARER"),
        ({"sasl.mechanism": None}, "oidc needs sasl.mechanism: OAUTHBEARER"),
        (
            {"sasl.oauthbearer.client.id": None, "sasl.oauthbearer.client.secret": None},
            "oidc needs sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret",
        ),
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config is derived from sasl.oauthbearer.method"),
    ],
)
def test_incomplete_login_is_refused_before_the_start(
    changes: dict[str, str | None], problem: str
) -> None:
    given = {name: text for name, text in {**OIDC, **changes}.items() if text is not None}
    with pytest.raises(ValidationError) as refused:
        source(given)
    assert problem in str(refused.value)


def test_login_with_the_properties_of_the_java_client_is_accepted() -> None:
    oauth = "org.apache.kafka.common.security.oauthbearer"
    given = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
        "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f'{oauth}.OAuthBearerLoginModule required clientId="a";',
    }
    assert read_consumer(source(given)).items() >= given.items()
    with pytest.raises(NotTranslatable, match=r"sasl\.mechanism OAUTHBEARER"):
        client_settings("h:1", {"security.protocol": "SASL_SSL", **given})


def test_wait_for_the_token_endpoint_may_be_set() -> None:
    """By default it is limited, although Kafka's Java client would wait for ever."""
    own = {"sasl.login.connect.timeout.ms": "500", "sasl.login.read.timeout.ms": "500"}
    assert java_properties({**OIDC, **own}).items() >= own.items()


def test_secret_of_two_lines_is_refused_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "fir5t\nsec0nd")
    given = source({**OIDC, "sasl.oauthbearer.client.secret": {"env": "CLIENT_SECRET"}})
    with pytest.raises(Exception, match="contains a line break") as refused:
        read_consumer(given)
    assert "sec0nd" not in str(refused.value)


def test_client_secret_is_redacted() -> None:
    given = source({**OIDC, "sasl.oauthbearer.client.secret": "v3ry-s3cr3t"})
    assert "v3ry-s3cr3t" not in str(given.model_dump(mode="json"))
    assert build_redactor(given)("v3ry-s3cr3t") == "***"


def test_login_by_iam_is_translated_for_java() -> None:
    module = "software.amazon.msk.auth.iam.IAMLoginModule"
    found = java_properties(MSK)
    assert found["sasl.jaas.config"] == f"{module} required;"
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    assert found["sasl.client.callback.handler.class"] == handler
    own = f'{module} required awsProfileName="lake";'
    assert java_properties({**MSK, "sasl.jaas.config": own})["sasl.jaas.config"] == own


def test_login_by_iam_signs_tokens_for_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "v3ry-s3cr3t")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    found = client_settings(BROKERS, MSK)
    assert found["sasl.mechanism"] == "OAUTHBEARER"
    token, expires_at = found["oauth_cb"](None)
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert url.netloc == "kafka.eu-west-1.amazonaws.com"
    query = parse_qs(url.query)
    assert query["Action"] == ["kafka-cluster:Connect"]
    (credential,) = query["X-Amz-Credential"]
    assert credential.startswith("AKIAEXAMPLE/")
    assert credential.endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert {"X-Amz-Signature", "X-Amz-Expires", "User-Agent"} <= query.keys()
    assert "v3ry-s3cr3t" not in url.query
    assert expires_at > 1.7e9


@pytest.mark.parametrize(
    ("region", "login", "expected"),
    [
        ("eu-west-1", None, MskToken("eu-west-1")),
        (None, None, "without a region: set AWS_REGION"),
        ("us-east-1", 'awsProfileName="lake"', MskToken("us-east-1", "lake")),
        ("us-east-1", 'awsRoleArn="arn"', "sasl.jaas.config is not IAMLoginModule"),
    ],
)
def test_region_and_profile_of_tokens(
    monkeypatch: pytest.MonkeyPatch, region: str | None, login: str | None, expected: MskToken | str
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    if region is not None:
        monkeypatch.setenv("AWS_REGION", region)
    properties = dict(MSK)
    if login is not None:
        module = "software.amazon.msk.auth.iam.IAMLoginModule"
        properties["sasl.jaas.config"] = f"{module} required {login};"
    if isinstance(expected, MskToken):
        assert client_settings("kafka.internal:9098", properties)["oauth_cb"] == expected
    else:
        with pytest.raises(NotTranslatable, match=expected):
            client_settings("kafka.internal:9098", properties)


@pytest.mark.parametrize(
    ("profile", "reason"),
    [("", "no credentials of AWS were found"), ("lake", r"profile \(lake\) could not be found")],
)
def test_client_that_cannot_sign_tokens_names_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str, reason: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    module = "software.amazon.msk.auth.iam.IAMLoginModule"
    option = f' awsProfileName="{profile}"' if profile else ""
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{module} required{option};",
    }
    with pytest.raises(NotTranslatable, match=reason):
        TopicClient("localhost:1", "orders", properties)
