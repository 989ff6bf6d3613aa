"""The spans of batches are those that a collector of OpenTelemetry receives."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from streamer.hooks.notices import Notice
from streamer.hooks.opentelemetry_hook import OpenTelemetryHook
from streamer.hooks.settings import HookSettings
from tests.fixtures.webhook import Webhook
from tests.unit.streamer.hooks.notice_samples import AT, FAILED, RETRYING, batch


def sent(webhook: Webhook, notice: Notice) -> tuple[dict[str, Any], list[Span]]:
    """Send a notice; return the attributes of the resource, and the spans."""
    settings = HookSettings(options={"url": webhook.url, "service_name": "shop"})
    assert OpenTelemetryHook(settings).send(notice)
    assert webhook.headers[-1]["content-type"] == "application/x-protobuf"
    request = ExportTraceServiceRequest.FromString(webhook.bodies[-1])
    (resource,) = request.resource_spans
    (scope,) = resource.scope_spans
    return attributes(resource.resource.attributes), list(scope.spans)


def attributes(pairs: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in pairs}


def test_batch_is_a_span_with_its_stages(webhook: Webhook) -> None:
    resource, (root, *stages) = sent(webhook, batch())
    assert resource["service.name"] == "shop"
    assert root.name == "batch"
    assert not root.parent_span_id
    assert [stage.name for stage in stages] == ["read", "write", "commit"]
    assert {stage.parent_span_id for stage in stages} == {root.span_id}
    assert {stage.trace_id for stage in stages} == {root.trace_id}
    assert len({root.span_id, *(stage.span_id for stage in stages)}) == 4
    end_ns = int(AT.timestamp() * 1e9)
    assert root.end_time_unix_nano == end_ns
    assert end_ns - root.start_time_unix_nano == 1_750_000_000, "the stages take more than 1.5 s"
    lengths = [one.end_time_unix_nano - one.start_time_unix_nano for one in stages]
    assert lengths == [500_000_000, 1_000_000_000, 250_000_000]
    starts = [stage.start_time_unix_nano for stage in stages]
    assert starts == sorted(starts)
    described = attributes(root.attributes)
    assert described["lakemark.pipeline"] == "shop-orders"
    assert described["lakemark.instant"] == "20260131060000121"
    assert described["lakemark.rows_written"] == 10


def test_failure_is_a_span_with_its_error(webhook: Webhook) -> None:
    for notice, kind in ((RETRYING, "StorageUnavailable"), (FAILED, "LostOffsets")):
        _, (span,) = sent(webhook, notice)
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert attributes(span.attributes)["error.type"] == kind
        (raised,) = span.events
        assert raised.name == "exception"
        assert attributes(raised.attributes)["exception.message"] == notice.error


def test_each_batch_is_a_trace_of_its_own(webhook: Webhook) -> None:
    traces = {sent(webhook, batch(number))[1][0].trace_id for number in (1, 2)}
    assert len(traces) == 2


def test_check_sends_a_request_without_spans(webhook: Webhook) -> None:
    OpenTelemetryHook(HookSettings(options={"url": webhook.url})).check()
    assert webhook.bodies == [b""]
