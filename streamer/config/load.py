"""Reads a pipeline file, applies the overrides of ``--set``, and validates the result."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from lakemark.config.merger_name import is_file
from lakemark.errors import HudiError, Retriable
from lakemark.schema.avro import to_arrow
from lakemark.schema.canonical import canonical
from lakemark.storage import StorageLocation, canonical_url, open_storage
from streamer.config import problems
from streamer.config.errors import ConfigError, Problem
from streamer.config.masking import name_only, without_user_info
from streamer.config.pipeline import PipelineConfig
from streamer.config.routed_tree import check_routed_tree, chosen_value, for_value, has_route
from streamer.config.topics import for_topic, has_several_topics
from streamer.config.yaml_text import InvalidYaml, parse_yaml
from transforms.decode.envelopes.debezium import AFTER
from transforms.schema_text import print_schema

_AVRO_FILE = "Avro schema file, such as order.avsc"
_FILE_KINDS = {
    "query": "SQL file, such as order.sql",
    "descriptors": "file of descriptors, such as order.desc",
}

#: A parsed pipeline file: sections that contain settings and further sections.
Tree = dict[str, object]


def load(location: str, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Load and validate a pipeline file.

    Args:
        location: a local path, or a URL of any store.
        overrides: each ``a.b.c=VALUE``, where VALUE is YAML; later ones replace earlier ones.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or is not a valid pipeline. The error
            lists all problems.
        Retriable: the store does not answer.
    """
    return load_text(read(location), location, overrides)


def load_text(
    text: str, location: str = "the pipeline file", overrides: Sequence[str] = ()
) -> PipelineConfig:
    """Load and validate the text of a pipeline file.

    Args:
        text: the text.
        location: where the text comes from, for errors. Paths in the text are relative to its
            folder; without a folder, to the working directory.
        overrides: as for ``load``.

    Raises:
        ConfigError: as for ``load``; or the text describes several pipelines or tables.
        Retriable: the store of a file that the text names does not answer.
    """
    tree = _with_files_read(parse(text, location), location, overrides)
    if has_several_topics(tree):
        message = (
            "the file describes a pipeline for each of several topics; name the topic of one of "
            "them: --set source.topic=NAME"
        )
        raise ConfigError([Problem("source.topic", message)])
    return validated(_of_one_table(tree) if has_route(tree) else tree)


def _of_one_table(tree: Tree) -> Tree:
    """Return the settings of the table that a command has chosen (``route.value``).

    Raises:
        ConfigError: none was chosen, or the file is not valid.
    """
    value = chosen_value(tree)
    if value is None:
        message = (
            "the file describes a table for each value of a field or header; name the value of "
            "one of them: --set route.value=NAME"
        )
        raise ConfigError([Problem("route.value", message)])
    if problems := check_routed_tree(tree):
        raise ConfigError(problems)
    return for_value(tree, value)


def load_tree(location: str, overrides: Sequence[str] = ()) -> Tree:
    """Load the sections and settings of a pipeline file, without validating them.

    Args:
        location: as for ``load``.
        overrides: as for ``load``.

    Returns:
        The settings, with the contents of the files that they name.

    Raises:
        ConfigError, Retriable: as for ``load``.
    """
    return _with_files_read(parse(read(location), location), location, overrides)


def _with_files_read(tree: Tree, location: str, overrides: Sequence[str]) -> Tree:
    for override in overrides:
        apply_override(tree, override)
    folder = location.rpartition("/")[0]
    _read_files(tree, folder)
    if isinstance(snapshot := tree.get("snapshot"), dict):
        tree["snapshot"] = _with_files_of_snapshot(snapshot, folder)
    source = tree.get("source")
    topic = source.get("topic") if isinstance(source, dict) else None
    return for_topic(tree, topic) if isinstance(topic, str) else tree


def _read_files(tree: Tree, folder: str) -> None:
    """Read, or locate, the files that the sections of a pipeline name."""
    _read_schema_files(tree, folder)
    _locate_mergers(tree, folder)
    _read_step_files(tree, folder)


def _with_files_of_snapshot(snapshot: Tree, folder: str) -> Tree:
    """Do the same for the section ``snapshot``, which has sections of the same names."""
    tree: Tree = {name: snapshot[name] for name in ("decode", "transform") if name in snapshot}
    tree["source"] = snapshot
    try:
        _read_files(tree, folder)
    except ConfigError as error:
        problems = [Problem(f"snapshot.{one.path}", one.message) for one in error.problems]
        raise ConfigError(problems) from None
    located = tree.pop("source")
    assert isinstance(located, dict), located
    return {**located, **tree}


def validated(tree: Mapping[str, object]) -> PipelineConfig:
    """Validate the sections and settings of a pipeline.

    Raises:
        ConfigError: the settings are not valid. The error lists all problems.
    """
    try:
        return PipelineConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(problems.from_validation(error, PipelineConfig)) from None


def check_resolved(config: PipelineConfig) -> None:
    """Check now that all secrets can be found, because some are needed after hours only.

    Raises:
        ConfigError: a secret cannot be found on this machine.
    """
    if problems := config.unresolved():
        raise ConfigError(problems)


def read(location: str) -> str:
    """Read a text file from any store.

    Raises:
        ConfigError: the file cannot be read. The error does not show a user, password or token
            that the location contains.
        Retriable: the store does not answer.
    """
    try:
        return _read_bytes(location).decode("utf-8")
    except ValueError as error:
        raise _unreadable(location, str(error)) from error


def _read_bytes(location: str) -> bytes:
    """Read a file from any store. Raises the same errors as ``read``."""
    try:
        if "://" not in location:
            canonical_url(location)
            return Path(location).read_bytes()
        folder, _, name = location.rpartition("/")
        return open_storage(StorageLocation(folder)).read(name)
    except Retriable:
        raise
    except OSError as error:
        raise _unreadable(location, str(error.strerror)) from error
    except (HudiError, ValueError) as error:
        raise _unreadable(location, str(error)) from error


def _unreadable(location: str, reason: str) -> ConfigError:
    return ConfigError([Problem("", without_user_info(f"cannot read {location}: {reason}"))])


def parse(text: str, location: str) -> Tree:
    """Parse the sections and settings of a YAML text.

    Raises:
        ConfigError: the text is not YAML, repeats a name, or is not a mapping. The error does not
            quote the text, because it may contain secrets.
    """
    try:
        tree = parse_yaml(text)
    except InvalidYaml as error:
        raise ConfigError([Problem("", f"{location} is not valid YAML{error}")]) from None
    if not isinstance(tree, dict):
        message = f"{location} has no settings; a pipeline needs at least source and table"
        raise ConfigError([Problem("", message)])
    return tree


def apply_override(tree: Tree, override: str) -> None:
    """Set one value in the tree, and create missing sections.

    Below a setting with free names (``source.consumer``, ``spark.conf``, …), dots are part of the
    name: ``source.consumer.security.protocol=SSL``.

    Raises:
        ConfigError: ``override`` is not ``a.b.c=value``, or the path leads through a setting that
            is not a section.
    """
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")) or path != name_only(path):
        raise ConfigError([Problem("", f"--set {name_only(override)}: expected a.b.c=value")])
    *sections, name = split_path(path)
    section: object = tree
    for part in sections:
        section = section.setdefault(part, {}) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        raise ConfigError([Problem(path, "--set: a part of this path is not a section")])
    try:
        section[name] = parse_yaml(text)
    except InvalidYaml as error:
        raise ConfigError([Problem(path, f"--set: the value is not valid YAML{error}")]) from None


def _read_schema_files(tree: Tree, folder: str) -> None:
    """Replace the paths of schema files by the contents of the files.

    ``decode.schema: {avro: PATH}`` becomes the columns of the schema. ``{file: PATH}`` in
    ``decode.writer_schema`` and ``decode.key_schema`` becomes the text of the file, and in
    ``decode.descriptors`` the Base64 of the file.
    """
    decode = tree.get("decode")
    if not isinstance(decode, dict):
        return
    found: Tree = {}
    if (text := _text_of_file(decode, "decode", "schema", "avro", folder)) is not None:
        try:
            columns = canonical(to_arrow(text))
            found["schema"] = print_schema(_row_columns(decode, columns))
        except HudiError as error:
            raise ConfigError([Problem("decode.schema.avro", str(error))]) from error
    for name in ("writer_schema", "key_schema"):
        if (text := _text_of_file(decode, "decode", name, "file", folder)) is not None:
            found[name] = text
    place = _location_of_file(decode, "decode", "descriptors", "file", folder)
    if place is not None:
        found["descriptors"] = b64encode(_read_bytes(place)).decode()
    tree["decode"] = {**decode, **found}


def _row_columns(decode: Tree, columns: pa.Schema) -> pa.Schema:
    """Return the columns of the rows, if a schema may be that of events which contain rows."""
    if decode.get("format") != "debezium" or AFTER not in columns.names:
        return columns
    return pa.schema(list(columns.field(AFTER).type))


def _text_of_file(
    section: Tree, section_path: str, setting: str, origin: str, folder: str
) -> str | None:
    """Return the text of the file in ``setting: {origin: PATH}``; None for any other value."""
    place = _location_of_file(section, section_path, setting, origin, folder)
    return None if place is None else read(place)


def _location_of_file(
    section: Tree, section_path: str, setting: str, origin: str, folder: str
) -> str | None:
    """Return the location of the file in ``setting: {origin: PATH}``; None for any other value."""
    given = section.get(setting)
    if not isinstance(given, dict) or list(given) != [origin]:
        return None
    path = given[origin]
    if not isinstance(path, str) or not path:
        kind = _FILE_KINDS.get(setting, _AVRO_FILE)
        article = "a" if setting == "descriptors" else "an"
        message = f"expected the path or the URL of {article} {kind}"
        raise ConfigError([Problem(f"{section_path}.{setting}.{origin}", message)])
    try:
        canonical_url(path)
    except HudiError as error:
        raise ConfigError([Problem(f"{section_path}.{setting}.{origin}", str(error))]) from error
    return _locate(path, folder)


def _locate_mergers(tree: Tree, folder: str) -> None:
    """Resolve the FILE.py of a merger relative to the folder of the pipeline file."""
    for name in ("source", "table"):
        section = tree.get(name)
        merger = section.get("merger") if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(merger, str) and is_file(merger):
            tree[name] = {**section, "merger": _locate(os.path.expanduser(merger), folder)}


def _read_step_files(tree: Tree, folder: str) -> None:
    """Resolve the files of ``transform`` relative to the folder of the pipeline file.

    ``{file: PATH}`` in ``query`` becomes the text of the file. The file in ``function`` is read
    when the function is imported.
    """
    steps = tree.get("transform")
    if isinstance(steps, list):
        tree["transform"] = [
            _with_files(step, f"transform.{position}", folder) if isinstance(step, dict) else step
            for position, step in enumerate(steps)
        ]


def _with_files(step: Tree, path: str, folder: str) -> Tree:
    found: Tree = {}
    if isinstance(function := step.get("function"), str):
        found["function"] = _locate(os.path.expanduser(function), folder)
    if (text := _text_of_file(step, path, "query", "file", folder)) is not None:
        found["query"] = text
    return {**step, **found}


def _locate(path: str, folder: str) -> str:
    """Return a path that this process can open, for a path relative to ``folder`` or a full one."""
    is_full = not folder or "://" in path or Path(path).is_absolute()
    return path if is_full else f"{folder}/{path}"


def split_path(path: str) -> list[str]:
    """Split the path of a setting at its dots; a setting with a free name keeps its dots."""
    parts = path.split(".")
    depth = 0
    while (
        depth < len(parts) - 1
        and problems.section_at(PipelineConfig, parts[: depth + 1]) is not None
    ):
        depth += 1
    fixed = parts[: depth + 1]
    rest = parts[depth + 1 :]
    return [*fixed, ".".join(rest)] if rest else fixed
