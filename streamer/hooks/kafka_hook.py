"""Produces a JSON message about each commit to a topic, at least once.

All messages of a table have the same key, its URL. So they are in one partition, in the order of
the commits.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from streamer.hooks.hook import HookUnavailable, NoticeRefused
from streamer.hooks.kafka_settings import check_kafka
from streamer.hooks.messages import FORMATS
from streamer.hooks.notices import CommitCompleted, Notice
from streamer.hooks.settings import HookSettings

#: Seconds for which the brokers may take to accept a message or to describe the topic.
_ANSWER_WITHIN_S = 20.0

#: Seconds that librdkafka may then take to report that they did not.
_SLACK_S = 2.0

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG_SIZE)


class KafkaHook:
    """Produces each commit to a topic, which must exist.

    Args:
        settings: the brokers, the topic, the format of the messages, and the properties of the
            producer.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """

    def __init__(self, settings: HookSettings) -> None:
        self._connection = check_kafka(settings)
        self._encode = FORMATS[settings.options.get("format", "lakemark")]
        self._bootstrap = settings.options["bootstrap_servers"]
        self._topic = settings.options["topic"]
        self._producer: Producer | None = None

    def __str__(self) -> str:
        return f"topic {self._topic} at {self._bootstrap}"

    def send(self, notice: Notice, /) -> bool:
        """See ``Hook``. All replicas in sync have the message when this returns."""
        if not isinstance(notice, CommitCompleted):
            return False
        self._produce(notice.facts.path.encode(), self._encode(notice))
        return True

    def check(self) -> str:
        """See ``Hook``. The brokers describe the topic; no message is sent.

        Raises:
            HookUnavailable: the brokers do not answer, or there is no such topic.
        """
        admin = AdminClient(dict(self._connection))
        futures = admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=_ANSWER_WITHIN_S
        )
        try:
            found = futures[self._topic].result(_ANSWER_WITHIN_S)
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None
        except TimeoutError:
            message = f"{self} does not answer"
            raise HookUnavailable(message) from None
        return f"{self} has {len(found.partitions)} partitions"

    def close(self) -> None:
        """See ``Hook``."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)
            self._producer = None

    def _produce(self, key: bytes, value: bytes) -> None:
        """Produce a message, and wait for the answer of the brokers."""
        producer = self._open()
        answers: list[KafkaError | None] = []
        try:
            producer.produce(
                self._topic, value, key, on_delivery=lambda error, _: answers.append(error)
            )
        except KafkaException as error:
            raise self._translate(error.args[0]) from None
        producer.flush(_ANSWER_WITHIN_S + _SLACK_S)
        if not answers:  # the producer might still send the message, after a newer one
            self.close()
        answer = answers[0] if answers else None
        if not answers or answer is not None:
            raise self._translate(answer)

    def _open(self) -> Producer:
        """Return the producer. The topic is checked first, because brokers may create topics."""
        if self._producer is None:
            self.check()
            self._producer = Producer(
                {
                    **self._connection,
                    "enable.idempotence": True,  # implies acks=all
                    "partitioner": "murmur2_random",  # as Kafka's Java client
                    "message.timeout.ms": int(_ANSWER_WITHIN_S * 1000),
                    "linger.ms": 0,
                }
            )
        return self._producer

    def _translate(self, error: KafkaError | None) -> HookUnavailable | NoticeRefused:
        if error is not None and error.code() in _TOO_LARGE:
            message = (
                f"{self} refuses the message: {error.str()}; raise max.request.size in properties, "
                "and max.message.bytes of the topic"
            )
            return NoticeRefused(message)
        if error is not None and error.fatal():
            self.close()  # the next attempt opens another producer
        return self._unavailable(error)

    def _unavailable(self, error: KafkaError | None) -> HookUnavailable:
        if error is not None and error.code() in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
        ):
            return HookUnavailable(f"there is no {self}; create it")
        reason = "no answer" if error is None else error.str()
        return HookUnavailable(f"{self} did not accept the message: {reason}")
