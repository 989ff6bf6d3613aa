"""Opens a hook by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib.util import find_spec

from lakemark.errors import InvalidConfig
from lakemark.extras import install_command
from streamer.hooks.hook import Hook
from streamer.hooks.notices import (
    BatchFailed,
    BatchMeasured,
    CommitCompleted,
    Notice,
    RunBegan,
    RunEnded,
)
from streamer.hooks.settings import HookSettings


class HookKind(StrEnum):
    """The kinds of hooks.

    Attributes:
        HTTP: posts a JSON message about each commit.
        KAFKA: produces a JSON message about each commit.
        OPENLINEAGE: sends lineage events about runs and commits.
        OPENTELEMETRY: sends traces of batches and failures.
    """

    HTTP = "http"
    KAFKA = "kafka"
    OPENLINEAGE = "openlineage"
    OPENTELEMETRY = "opentelemetry"


def open_hook(kind: str, settings: HookSettings) -> Hook:
    """Open a hook, without connecting to its receiver.

    Args:
        kind: one of ``HookKind``, or the name of an installed hook.
        settings: its settings.

    Raises:
        InvalidConfig: there is no such hook, its library is not installed, or a setting is missing,
            unknown or wrong.
    """
    if kind in _BY_KIND:
        check_installed(kind)
        return _BY_KIND[kind](settings)
    from streamer.hooks.installed_hook import load_hook

    settings.refuse(kind, "headers", "properties")
    return load_hook(kind, settings.options, tuple(HookKind))


def notices_of(kind: str) -> tuple[type[Notice], ...]:
    """Return the notices that a kind of hook sends; a hook of another package receives all."""
    return _NOTICES.get(kind, _ALL)


def check_installed(kind: str) -> None:
    """Check that the libraries of a hook are installed.

    Raises:
        InvalidConfig: one of them is not.
    """
    extra, *libraries = _LIBRARIES.get(kind, ("",))
    for library in libraries:
        if not _is_installed(library):
            message = f"hook {kind} needs the library {library}: {install_command(extra)}"
            raise InvalidConfig(message)


def check_hook(kind: str, settings: HookSettings) -> None:
    """Check the kind of a hook and its settings, without its library or a connection.

    The options of a hook that another package provides are not checked.

    Raises:
        InvalidConfig: as for ``open_hook``.
    """
    if kind in _CHECKS:
        _CHECKS[kind](settings)
        return
    from streamer.hooks.installed_hook import installed_names

    if kind not in installed_names():
        known = ", ".join([*HookKind, *installed_names()])
        message = f"there is no hook of the kind {kind!r}; use one of {known}"
        raise InvalidConfig(message)
    settings.refuse(kind, "headers", "properties")


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the package that should contain it
        return False


def _open_http(settings: HookSettings) -> Hook:
    from streamer.hooks.http_hook import HttpHook

    return HttpHook(settings)


def _open_kafka(settings: HookSettings) -> Hook:
    from streamer.hooks.kafka_hook import KafkaHook

    return KafkaHook(settings)


def _open_openlineage(settings: HookSettings) -> Hook:
    from streamer.hooks.openlineage_hook import OpenLineageHook

    return OpenLineageHook(settings)


def _open_opentelemetry(settings: HookSettings) -> Hook:
    from streamer.hooks.opentelemetry_hook import OpenTelemetryHook

    return OpenTelemetryHook(settings)


def _check_http(settings: HookSettings) -> None:
    from streamer.hooks.http_hook import check_http

    check_http(settings)


def _check_kafka(settings: HookSettings) -> None:
    from streamer.hooks.kafka_settings import check_kafka

    check_kafka(settings)


def _check_openlineage(settings: HookSettings) -> None:
    from streamer.hooks.openlineage_settings import check_openlineage

    check_openlineage(settings)


def _check_opentelemetry(settings: HookSettings) -> None:
    from streamer.hooks.opentelemetry_settings import check_opentelemetry

    check_opentelemetry(settings)


_BY_KIND: Mapping[str, Callable[[HookSettings], Hook]] = {
    HookKind.HTTP: _open_http,
    HookKind.KAFKA: _open_kafka,
    HookKind.OPENLINEAGE: _open_openlineage,
    HookKind.OPENTELEMETRY: _open_opentelemetry,
}

_ALL: tuple[type[Notice], ...] = (RunBegan, CommitCompleted, BatchMeasured, BatchFailed, RunEnded)

_NOTICES: Mapping[str, tuple[type[Notice], ...]] = {
    HookKind.HTTP: (CommitCompleted,),
    HookKind.KAFKA: (CommitCompleted,),
    HookKind.OPENLINEAGE: (RunBegan, CommitCompleted, RunEnded),
    HookKind.OPENTELEMETRY: (BatchMeasured, BatchFailed, RunEnded),
}

#: The extra of lakemark that installs the libraries of a hook, and these libraries.
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    HookKind.KAFKA: ("streamer", "confluent_kafka"),
    HookKind.OPENLINEAGE: ("openlineage", "openlineage.client"),
    HookKind.OPENTELEMETRY: (
        "opentelemetry",
        "opentelemetry.sdk",
        "opentelemetry.exporter.otlp.proto.common",
    ),
}

_CHECKS: Mapping[str, Callable[[HookSettings], None]] = {
    HookKind.HTTP: _check_http,
    HookKind.KAFKA: _check_kafka,
    HookKind.OPENLINEAGE: _check_openlineage,
    HookKind.OPENTELEMETRY: _check_opentelemetry,
}
