"""Checks of the schema registry of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from streamer.checks.check import Check, Finding
from streamer.config.decode import RegistryDecodeConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.schema_registry import SchemaRegistryConfig
from streamer.wording import counted
from transforms.decode.schema_registry import ReadForbidden, SchemaNotFound, SchemaRegistry

#: Seconds for which requests to a schema registry are repeated, unless its setting is shorter.
_RETRY_TIMEOUT_S: Final = 7.0


def registry_check(config: PipelineConfig) -> Check | None:
    """Return the check that the registry answers; None if the pipeline uses no registry."""
    found = _registry_of(config)
    if found is None:
        return None
    settings, subject = found

    def run() -> Finding:
        _quick(settings).check(subject)
        return Finding()

    return Check(_name(settings), run)


def subject_checks(config: PipelineConfig) -> list[Check]:
    """Return the checks that the registry answers, and that the newest schema can be read."""
    check, found = registry_check(config), _registry_of(config)
    if check is None or found is None:
        return []
    name = f"subject {found[1]}"
    return [check, Check(name, lambda: _check_subject(config), (check.name,))]


def _check_subject(config: PipelineConfig) -> Finding:
    """Read the newest schema of the subject, which need not exist if the columns are declared."""
    decode = config.decode
    try:
        columns = decode.newest_columns(config.source.origin)
    except (SchemaNotFound, ReadForbidden) as error:
        if decode.declared() is None:
            raise
        text = f"{error}; a run reads schemas by the ids in the records, and may not need it"
        return Finding(warnings=(text,))
    if columns is None:
        return Finding()
    return Finding(f"newest schema with {counted(len(columns), 'column')}")


def _registry_of(config: PipelineConfig) -> tuple[SchemaRegistryConfig, str] | None:
    decode = config.decode
    if not isinstance(decode, RegistryDecodeConfig) or decode.schema_registry is None:
        return None
    return decode.schema_registry, decode.subject_of(config.source.origin)


def _quick(settings: SchemaRegistryConfig) -> SchemaRegistry:
    registry = settings.registry()
    timeout_s = min(registry.retry_timeout_s, _RETRY_TIMEOUT_S)
    return replace(registry, retry_timeout_s=timeout_s)


def _name(settings: SchemaRegistryConfig) -> str:
    return f"schema registry {settings.url}"
