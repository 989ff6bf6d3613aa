"""The tables that a pipeline file with a route describes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from lakemark.errors import HudiError, InvalidConfig
from lakemark.schema.field_path import column_at
from lakemark.storage import StorageLocation, canonical_url
from streamer.config.errors import ConfigError, Problem
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.load import Tree, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.route import RouteConfig
from streamer.config.routed_tree import (
    VALUE,
    check_routed_tree,
    for_value,
    parent_of,
    pipeline_name,
    stream_name,
)
from streamer.config.run import dead_letters_path
from streamer.config.section import Section
from streamer.config.settings import Setting
from streamer.record_conversion import record_converter
from streamer.table_setup import table_spec
from transforms.decode.decoder import ColumnDecoder
from transforms.reject_reason import RejectCode, RejectReason
from transforms.routing import FieldRoute, HeaderRoute, Route

#: The value with which a template is validated before its values are known.
_SAMPLE = "sampled-value"

#: The longest name of a folder, in bytes, on the usual file systems.
_LONGEST_NAME = 255

#: The values that may name a table, as far as their characters are concerned.
_NAME = re.compile(r"[A-Za-z0-9_.-]+")

#: How much of a value a reason shows.
_SHOWN = 80


@dataclass(frozen=True)
class RouteTemplate:
    """A pipeline file that describes a table for each value of a field or header.

    Attributes:
        sample: the pipeline of the whole topic. Its paths are those of a table that need not exist.
    """

    sample: PipelineConfig
    _tree: Tree = field(repr=False)

    @classmethod
    def of(cls, tree: Tree) -> RouteTemplate:
        """Validate a file.

        Raises:
            ConfigError: a setting is not valid; the error lists all problems.
        """
        if problems := check_routed_tree(tree):
            raise ConfigError(problems)
        known = {**for_value(tree, _SAMPLE), "route": tree["route"], "name": stream_name(tree)}
        template = cls(validated(known), tree)
        if problems := list(template._unsuitable_names()):
            raise ConfigError(problems)
        return template

    def _unsuitable_names(self) -> Iterator[Problem]:
        """Yield a problem for each name in the file that no table may have."""
        allow, default = self.route.allow, self.route.default
        named = [("route.allow", one) for one in (allow if isinstance(allow, tuple) else ())]
        for setting, name in [*named, *([("route.default", default)] if default else [])]:
            if reason := self.refuse(name):
                yield Problem(setting, str(reason))

    @property
    def route(self) -> RouteConfig:
        """The section ``route``."""
        assert self.sample.route is not None
        return self.sample.route

    @property
    def shown(self) -> PipelineConfig:
        """The pipeline of the whole topic, with the placeholder in its settings."""
        shown = _with_placeholder(self.sample)
        assert isinstance(shown, PipelineConfig)
        return shown

    @property
    def source(self) -> KafkaSourceConfig:
        """The topic. The header that names the table is read, too."""
        source, header = self.sample.kafka, self.route.header
        if header is None:
            return source
        return source.model_copy(
            update={"header_columns": {**source.header_columns, f"route by {header}": header}}
        )

    @property
    def path(self) -> str:
        """``table.path`` with the placeholder."""
        return self._path_in("table").rstrip("/")

    @property
    def rule(self) -> str:
        """The route as text. Positions that were stored with another one cannot be used."""
        by = f"header {self.route.header}" if self.route.header else f"field {self.route.field}"
        return f"{by} to {self.path}"

    @property
    def positions(self) -> StorageLocation:
        """The folder of the stored positions."""
        source = self.sample.kafka
        name = f"{source.topic}.{source.checkpoint_id}" if source.checkpoint_id else source.topic
        path = self.route.positions or self._in_parent(f".lakemark/{name}")
        return replace(self.sample.table.location(), url=path)

    @property
    def letters_path(self) -> str:
        """The path of the dead-letter table of records that belong to no table."""
        return self.route.dead_letters or dead_letters_path(self._in_parent(self.sample.name))

    def name_of(self, value: str) -> str:
        """Return the name of the pipeline of one table, also if no table may have this name."""
        return pipeline_name(self._tree, value)

    def table_of(self, value: str) -> PipelineConfig:
        """Return the pipeline of one table.

        Raises:
            ConfigError: no table may have this name.
        """
        return validated(for_value(self._tree, value))

    def of_letters(self) -> PipelineConfig:
        """Return a pipeline whose dead-letter table is that of records that belong to no table."""
        letters = self.sample.dead_letters.model_copy(update={"path": self.letters_path})
        return self.sample.model_copy(update={"dead_letters": letters})

    def route_of_records(self) -> Route:
        """Return what finds the route of each record."""
        decode = self.sample.decode
        ignores = decode.tombstones == "ignore"
        if self.route.header is not None:
            return HeaderRoute(self.route.header, ignores_tombstones=ignores)
        assert self.route.field is not None
        names = self.route.field.split(".")
        type_: pa.DataType = pa.string()
        for name in reversed(names[1:]):
            type_ = pa.struct([(name, type_)])
        decoder = decode.for_some_columns().decoder(pa.schema([(names[0], type_)]))
        return FieldRoute(self.route.field, decoder, self._decoder_of_tables(), ignores)

    def _decoder_of_tables(self) -> ColumnDecoder | None:
        """Return the decoder of all new tables, if its columns include the field of the route.

        None if the tables may have different decoders.
        """
        decode, field_name = self.sample.decode, self.route.field
        columns = decode.declared()
        if columns is None or field_name is None or not _is_text(columns, field_name):
            return None
        if decode.decoder(columns).identity is None:
            return None
        return record_converter(self.sample, table_spec(self.sample), columns, None).value_decoder

    def refuse(self, value: str) -> RejectReason | None:
        """Return why a value can name no table; None if it can. Validates a whole pipeline."""
        reason = self.refuse_name(value)
        if reason is not None:
            return reason
        try:
            self.table_of(value).table.location()
        except HudiError as error:
            return self._refused_name(value, str(error))
        return None

    def refuse_name(self, value: str) -> RejectReason | None:
        """Return why no table may have the name of a value; None if one may."""
        if value != self.route.default and not self.route.allows(value):
            text = f"{_shown(value)} names the table, but route.allow does not contain it"
            return RejectReason(RejectCode.ROUTE_NOT_ALLOWED, text, self._column)
        problem = self._name_problem(value)
        return None if problem is None else self._refused_name(value, problem)

    def _refused_name(self, value: str, problem: str) -> RejectReason:
        text = f"{_shown(value)} names the table, but no table may have this name: {problem}"
        return RejectReason(RejectCode.INVALID_ROUTE, text, self._column)

    @property
    def _column(self) -> str | None:
        return self.route.header or self.route.field

    def refuse_further(self, value: str) -> RejectReason:
        """Return why a value cannot name a further table."""
        text = (
            f"{_shown(value)} would name a further table, but there are "
            f"{self.route.max_tables} (route.max_tables)"
        )
        return RejectReason(RejectCode.TOO_MANY_TABLES, text, self._column)

    def _name_problem(self, value: str) -> str | None:
        """Return what is wrong with the paths that a value gives; None if nothing is."""
        if _NAME.fullmatch(value) is None:
            return "expected letters of ASCII, digits, '_', '.' and '-'"
        for template in (self.path, self._letters_template):
            for part in template.split("/"):
                if VALUE in part and (problem := _folder_problem(part.replace(VALUE, value))):
                    return problem
        if self._overlaps(value):
            return "its path is that of dead letters, or of the positions"
        return None

    def _overlaps(self, value: str) -> bool:
        path = self.path.replace(VALUE, value)
        if self.sample.dead_letters.enabled and _may_overlap(path, self._letters_template):
            return True
        own = [path, self._letters_template.replace(VALUE, value)]
        return any(_overlap(canonical_url(one), other) for one in own for other in self._reserved)

    @cached_property
    def _reserved(self) -> Sequence[str]:
        """The paths that no table may have, whatever its name is."""
        return [canonical_url(one) for one in (self.letters_path, self.positions.url)]

    @property
    def _letters_template(self) -> str:
        return (self._path_in("dead_letters") or dead_letters_path(self.path)).rstrip("/")

    def _path_in(self, section: str) -> str:
        found = self._tree.get(section)
        return str(found.get("path", "")) if isinstance(found, Mapping) else ""

    def _in_parent(self, name: str) -> str:
        parent = parent_of(self.path)
        return f"{parent}/{name}" if parent or self.path.startswith("/") else name


def _with_placeholder(settings: object) -> object:
    """Return settings in which the placeholder replaces the value of the sample."""
    if type(settings) is str:
        return settings.replace(_SAMPLE, VALUE)
    if isinstance(settings, Mapping):
        return {name: _with_placeholder(one) for name, one in settings.items()}
    if isinstance(settings, tuple):
        return tuple(map(_with_placeholder, settings))
    if isinstance(settings, Setting):
        return replace(settings, text=settings.text.replace(_SAMPLE, VALUE))
    if not isinstance(settings, Section):
        return settings
    own = {name: getattr(settings, name) for name in type(settings).model_fields}
    shown = {name: _with_placeholder(one) for name, one in own.items()}
    return settings.model_copy(update={n: one for n, one in shown.items() if one != own[n]})


def _shown(value: str) -> str:
    return repr(value[:_SHOWN]) + ("…" if len(value) > _SHOWN else "")


def _folder_problem(name: str) -> str | None:
    if name.startswith("."):
        return "the name of a folder must not begin with a dot"
    if len(name.encode()) > _LONGEST_NAME:
        return f"the name of a folder may have {_LONGEST_NAME} bytes"
    return None


def _may_overlap(path: str, template: str) -> bool:
    """Return whether a path is, contains or is inside a path of a template, for any value."""
    pairs = zip(path.split("/"), template.split("/"), strict=False)
    return all(_fits(part, pattern) for part, pattern in pairs)


def _fits(part: str, pattern: str) -> bool:
    expression = "[^/]+".join(map(re.escape, pattern.split(VALUE)))
    return re.fullmatch(expression, part, re.DOTALL) is not None


def _overlap(url: str, other: str) -> bool:
    shorter, longer = sorted((url.rstrip("/"), other.rstrip("/")), key=len)
    return longer == shorter or longer.startswith(f"{shorter}/")


def _is_text(columns: pa.Schema, name: str) -> bool:
    """Return whether there is such a column, or such a field in structs, and it is a text."""
    try:
        return bool(column_at(columns.empty_table(), name).type == pa.string())
    except InvalidConfig:
        return False
