"""Sends a trace of each batch to an OpenTelemetry collector, by OTLP over HTTP.

A batch is a span ``batch`` with a span for each of its stages. A failure is a span ``failure`` of
no duration, with the error. The spans are built when the batch has been committed, so the stages
follow one another in the trace, even if ``read`` overlapped the previous batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from streamer.hooks.http_client import HttpClient
from streamer.hooks.notices import BatchFailed, BatchMeasured, Notice, Outcome, RunEnded
from streamer.hooks.opentelemetry_settings import DEFAULT_SERVICE, check_opentelemetry
from streamer.hooks.settings import HookSettings

_SCOPE = InstrumentationScope("lakemark", version("lakemark"))
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)

#: What spans are described with.
_Attributes = Mapping[str, str | int | float]


class OpenTelemetryHook:
    """Sends the spans of each batch, and of each failure.

    Args:
        settings: the URL of the collector (``…/v1/traces``), the name of the service, and the
            headers.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """

    def __init__(self, settings: HookSettings) -> None:
        headers = {"Content-Type": "application/x-protobuf", "User-Agent": "lakemark"}
        self._http = HttpClient(check_opentelemetry(settings), headers)
        service = settings.options.get("service_name", DEFAULT_SERVICE)
        self._resource = Resource({SERVICE_NAME: service, SERVICE_VERSION: version("lakemark")})
        self._ids = RandomIdGenerator()

    def send(self, notice: Notice, /) -> bool:
        """See ``Hook``."""
        match notice:
            case BatchMeasured():
                spans = self._batch_spans(notice)
            case BatchFailed():
                spans = [self._failure_span(notice, notice.error_type, notice.error)]
            case RunEnded(outcome=Outcome.FAILED):
                spans = [self._failure_span(notice, notice.error_type, notice.error)]
            case _:
                return False
        self._http.post(encode_spans(spans).SerializeToString())
        return True

    def check(self) -> str:
        """See ``Hook``. A request without spans is sent, which collectors accept.

        Raises:
            HookUnavailable: the collector does not answer, or fails.
            NoticeRefused: what answers is no collector, because it refuses the request as wrong.
        """
        self._http.post(encode_spans([]).SerializeToString())
        return "the collector accepts spans"

    def close(self) -> None:
        """See ``Hook``; each request has closed its connection."""

    def _batch_spans(self, batch: BatchMeasured) -> list[ReadableSpan]:
        stages = list(batch.stage_s.items())
        stages_s = sum(seconds for _, seconds in stages)
        end_ns = _ns(batch.at)
        begin_ns = end_ns - int(max(batch.seconds, stages_s) * 1e9)
        facts = batch.facts
        described: dict[str, str | int | float] = {
            "lakemark.pipeline": facts.pipeline,
            "lakemark.run_id": str(batch.run_id),
            "lakemark.table": facts.path,
            "lakemark.source": facts.source,
            "lakemark.instant": batch.instant,
            **{f"lakemark.{name}": count for name, count in batch.counts.items()},
        }
        root = self._span("batch", None, begin_ns, end_ns, described)
        spans, at_ns = [root], begin_ns
        for name, seconds in stages:
            until_ns = min(end_ns, at_ns + int(seconds * 1e9))
            spans.append(self._span(name, root.get_span_context(), at_ns, until_ns, {}))
            at_ns = until_ns
        return spans

    def _failure_span(
        self, failed: BatchFailed | RunEnded, error_type: str, error: str
    ) -> ReadableSpan:
        at_ns = _ns(failed.at)
        described = {
            "lakemark.pipeline": failed.facts.pipeline,
            "lakemark.run_id": str(failed.run_id),
            "lakemark.table": failed.facts.path,
            "error.type": error_type,
        }
        raised = {"exception.type": error_type, "exception.message": error}
        return self._span(
            "failure",
            None,
            at_ns,
            at_ns,
            described,
            status=Status(StatusCode.ERROR, error),
            events=[Event("exception", raised, at_ns)],
        )

    def _span(
        self,
        name: str,
        parent: SpanContext | None,
        begin_ns: int,
        end_ns: int,
        attributes: _Attributes,
        *,
        status: Status | None = None,
        events: list[Event] | None = None,
    ) -> ReadableSpan:
        trace = self._ids.generate_trace_id() if parent is None else parent.trace_id
        context = SpanContext(trace, self._ids.generate_span_id(), False, _SAMPLED)
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            dict(attributes),
            events or (),
            kind=SpanKind.INTERNAL,
            status=status or Status(),
            start_time=begin_ns,
            end_time=end_ns,
            instrumentation_scope=_SCOPE,
        )


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)
