"""Pipelines that log in to Kafka with tokens or passwords, which change while they run."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakemark
from lakemark.execution.runner import LocalRunner
from sinks.hudi.exchange import DriverExchange
from streamer import pipeline
from streamer.checks.topic import topic_client
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.events import BatchWritten, Event, Retrying
from streamer.hooks.kafka_hook import KafkaHook
from streamer.hooks.settings import HookSettings
from streamer.sources.errors import BrokerRefused, BrokerUnreachable, LoginMissing, SourceError
from streamer.sources.kafka import KafkaSource
from streamer.sources.msk_token import MskToken
from tests.fixtures.secured_kafka import SecuredKafka
from tests.stream.orders_pipeline import pipeline_config
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def with_tokens(kafka: SecuredKafka, secret: object) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": kafka.endpoint.token_url,
        "sasl.oauthbearer.client.id": "lakemark",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "lake read",
    }


def configured(
    kafka: SecuredKafka, folder: Path, topic: str, consumer: dict[str, Any]
) -> PipelineConfig:
    return pipeline_config(
        kafka.secured,
        topic,
        folder / "orders",
        source={"consumer": consumer},
        run={"mode": "continuous", "retry": {"backoff_s": 0.1}},
    )


class Run:
    """A running pipeline.

    Attributes:
        events: what it has reported.
    """

    def __init__(self, kafka: SecuredKafka, topic: str) -> None:
        self._kafka, self._topic, self._sent = kafka, topic, 0
        self.events: list[Event] = []

    def read(self) -> int:
        return sum(one.records_read for one in self.events if isinstance(one, BatchWritten))

    def send(self) -> None:
        """Send a record, and wait until it is committed."""
        text = f'{{"order_id": "{self._sent}", "region": "north", "updated_at": 1}}'
        self._kafka.kafka.produce(self._topic, [(b"k", text.encode())])
        self._sent += 1
        until(lambda: self.read() == self._sent, "the record to be committed")


@contextmanager
def running(kafka: SecuredKafka, config: PipelineConfig) -> Iterator[Run]:
    run = Run(kafka, config.kafka.topic)
    failures: list[BaseException] = []
    with pipeline.build(config, run.events.append, DriverExchange(LocalRunner(1))) as built:

        def follow() -> None:
            try:
                built.loop.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield run
        finally:
            built.loop.stop()
            thread.join(120)
    assert not failures
    assert not thread.is_alive()


def test_tokens_are_renewed_while_the_pipeline_runs(
    secured_kafka: SecuredKafka, spark: SparkSession, tmp_path: Path
) -> None:
    endpoint, topic = secured_kafka.endpoint, secured_kafka.kafka.create_topic()
    (tmp_path / "secret").write_text(endpoint.secret + "\n")
    consumer = with_tokens(secured_kafka, {"file": str(tmp_path / "secret")})
    config = configured(secured_kafka, tmp_path, topic, consumer)
    with topic_client(config.kafka) as client:  # librdkafka
        assert len(client.describe().partitions) == 1
    with running(secured_kafka, config) as run:
        run.send()
        began = time.monotonic()
        until(
            lambda: time.monotonic() > began + endpoint.valid_for_s,
            "the end of the tokens of the start",
        )
        run.send()
    assert any(at > began for at in endpoint.issued)
    assert endpoint.scopes == {"lake read"}
    table = lakemark.open(str(tmp_path / "orders"))
    assert sorted(table.scan().to_table()["order_id"].to_pylist()) == ["0", "1"]


@pytest.mark.parametrize("client", ["librdkafka", "Java"])
def test_wrong_client_secret_is_refused_and_not_printed(
    secured_kafka: SecuredKafka,
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    client: str,
) -> None:
    wrong = "wr0ng-s3cr3t-of-client"
    caplog.set_level(logging.INFO)
    consumer = with_tokens(secured_kafka, wrong)
    config = configured(secured_kafka, tmp_path, secured_kafka.kafka.create_topic(), consumer)
    before = secured_kafka.endpoint.refused
    with pytest.raises(SourceError) as refused:
        if client == "Java":
            KafkaSource(spark, config.kafka)
        else:
            with topic_client(config.kafka) as opened:
                opened.describe()
    assert secured_kafka.endpoint.refused > before
    assert wrong not in f"{refused.value} {caplog.text}"


@pytest.mark.parametrize("answer", ["none", "failure"])
def test_token_endpoint_that_fails_is_asked_again(
    secured_kafka: SecuredKafka, spark: SparkSession, tmp_path: Path, answer: str
) -> None:
    endpoint = secured_kafka.endpoint
    consumer = with_tokens(secured_kafka, endpoint.secret)
    # The Java client gives up soon.
    consumer |= {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "10"}
    if answer == "none":
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        consumer["sasl.oauthbearer.token.endpoint.url"] = f"http://127.0.0.1:{port}/token"
    config = configured(secured_kafka, tmp_path, "orders", consumer)
    endpoint.is_failing = answer == "failure"
    try:
        with pytest.raises(BrokerUnreachable, match="the token endpoint gave no token"):
            KafkaSource(spark, config.kafka)
    finally:
        endpoint.is_failing = False


def test_secret_that_is_replaced_while_the_endpoint_fails_is_used_at_the_next_start(
    secured_kafka: SecuredKafka, spark: SparkSession, tmp_path: Path
) -> None:
    endpoint, file = secured_kafka.endpoint, tmp_path / "secret"
    file.write_text(endpoint.secret)
    consumer = with_tokens(secured_kafka, {"file": str(file)})
    consumer |= {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "10"}
    topic = secured_kafka.kafka.create_topic()
    config = configured(secured_kafka, tmp_path, topic, consumer)
    with KafkaSource(spark, config.kafka) as source:
        source.start(None)
        former, former_secret = source._admin, endpoint.secret
        file.write_text("an0ther-s3cr3t-of-client")
        endpoint.is_failing, endpoint.secret = True, "an0ther-s3cr3t-of-client"
        try:
            with pytest.raises(BrokerUnreachable, match="the token endpoint gave no token"):
                source.start(None)
            endpoint.is_failing = False
            source.start(None)
            assert source._admin is not former, "it would log in with the former secret"
        finally:
            endpoint.is_failing, endpoint.secret = False, former_secret


def test_password_that_is_replaced_in_its_file_is_used_by_the_running_pipeline(
    secured_kafka: SecuredKafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic, file = secured_kafka.kafka.create_topic(), tmp_path / "jaas"

    def rotate(password: str) -> None:
        new = tmp_path / "new"
        new.write_text(f'{SCRAM} required username="reader" password="{password}";')
        new.rename(file)
        secured_kafka.set_password("reader", password)

    rotate("first-passw0rd")
    config = configured(
        secured_kafka,
        tmp_path,
        topic,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": {"file": str(file)},
        },
    )
    redacted = build_redactor(config)
    with running(secured_kafka, config) as run:
        run.send()
        rotate("second-passw0rd")
        until(lambda: any(isinstance(one, Retrying) for one in run.events), "a refused login")
        run.send()
    assert redacted("first-passw0rd second-passw0rd") == "*** ***"


def test_password_that_the_broker_does_not_accept_ends_the_run(
    secured_kafka: SecuredKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """A password that was not replaced in its file is no reason to try again for ever."""
    secured_kafka.set_password("other", "passw0rd")
    login = f'{SCRAM} required username="other" password="wrong";'
    consumer = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": login,
    }
    topic = secured_kafka.kafka.create_topic()
    config = configured(secured_kafka, tmp_path, topic, consumer)
    with KafkaSource(spark, config.kafka) as source, pytest.raises(BrokerRefused):
        source.start(None)


def test_tokens_that_are_signed_here_reach_the_broker(
    secured_kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is not one of AWS, so it gets tokens that it accepts."""
    endpoint, topic = secured_kafka.endpoint, secured_kafka.kafka.create_topic()

    def sign(_: MskToken, __: object) -> tuple[str, float]:
        return endpoint.issue("lake"), time.time() + endpoint.valid_for_s

    monkeypatch.setattr(MskToken, "__call__", sign)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "AWS_MSK_IAM"}
    given = {"bootstrap_servers": secured_kafka.secured, "topic": topic}
    with topic_client(KafkaSourceConfig.model_validate({**given, "consumer": login})) as client:
        assert len(client.describe().partitions) == 1
    hook = KafkaHook(HookSettings(options=given, properties=login))
    assert topic in f"{hook} {hook.check()}"
    hook.close()


def test_login_by_iam_without_its_classes_is_refused_by_name(
    secured_kafka: SecuredKafka, spark: SparkSession
) -> None:
    consumer = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    given = {"bootstrap_servers": "b-1.a.kafka.eu-west-1.amazonaws.com:9098", "topic": "orders"}
    source = KafkaSourceConfig.model_validate({**given, "consumer": consumer})
    missing = r"needs the class software\.amazon\.msk\.auth\.iam\."
    with pytest.raises(LoginMissing, match=missing) as error:
        KafkaSource(spark, source)
    assert "--packages software.amazon.msk:aws-msk-iam-auth:" in str(error.value)
