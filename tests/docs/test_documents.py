"""The pages agree with the code: settings, types, paths, tests, commands and make targets."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from google.protobuf import descriptor_pb2

import lakemark
from lakemark.config.property_page import render_page
from streamer.cli import parser
from streamer.config.load import load, load_tree
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import render_reference
from streamer.config.routed_tree import has_route
from streamer.config.topics import has_several_topics
from streamer.job.plan import plan_job
from streamer.loop import STOP_GRACE_S
from streamer.migration.page import render_page as render_migration_page
from streamer.routing.template import RouteTemplate
from tests.golden.support import support
from tests.interop.oracle import ApacheTable
from transforms.schema_text import TYPES

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("*/*.md"))]
PAGES = [*GUIDES, ROOT / "CHANGELOG.md"]

#: Pages that are written by hand, and their longest line.
PRINTED = ("pipeline.md", "support.md", "foreign_tables.md", "hoodiestreamer_settings.md")
WRITTEN = [
    page
    for page in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]
    if page.name not in PRINTED
]
WIDEST = 100

#: What a page shows of a pod, which is no part of a pipeline file.
KUBERNETES = {"livenessProbe", "readinessProbe", "terminationGracePeriodSeconds"}

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def test_the_reference_of_the_pipeline_file_is_printed_from_the_settings() -> None:
    assert (ROOT / "docs" / "pipeline.md").read_text() == render_reference()


def test_the_reference_lists_what_each_enumeration_accepts() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]
    for name, accepted in (
        ("starting_offsets", "`earliest`, `latest`, or a value as described."),
        ("isolation_level", "`read_committed`, `read_uncommitted`."),
        ("metadata_columns", "`topic`, `partition`, `offset`, `timestamp`, `key`."),
        ("policy", "`keep_latest_commits`, `keep_latest_by_hours`, `keep_latest_file_versions`."),
        ("version", "`6`, `8`, `9`."),
    ):
        (row,) = [line for line in rows if line.startswith(f"| `{name}` ")]
        assert row.endswith(f" Accepted: {accepted} |")


def test_the_reference_lists_the_types_of_columns() -> None:
    page = render_reference()
    assert [one.name for one in TYPES if f"\n| `{one.name}`" not in page] == []


def test_the_settings_of_apache_writers_name_the_bucket_index() -> None:
    """The page shows the options with which the interop tests let Apache Hudi write."""
    page = (ROOT / "docs" / "concurrency.md").read_text()
    options = ApacheTable("orders", ["order_id"], bucket_count=4).write_options()
    for name in ("hoodie.index.type", "hoodie.bucket.index.num.buckets"):
        assert f"\n{name}={options[name]}\n" in page
    assert "\nhoodie.bucket.index.hash.field=order_id\n" in page


def test_what_is_read_is_printed_from_the_tests() -> None:
    assert (ROOT / "docs" / "support.md").read_text() == support()


def test_the_page_of_table_properties_is_printed_from_the_rules() -> None:
    assert (ROOT / "docs" / "foreign_tables.md").read_text() == render_page()


def test_the_settings_of_hoodiestreamer_are_printed_from_the_rules() -> None:
    page = (ROOT / "docs" / "hoodiestreamer_settings.md").read_text()
    assert page == render_migration_page()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"env: (\w+)", path.read_text()):
        monkeypatch.setenv(name, "value")
    assert _load(path).kafka.topic


def _load(path: Path) -> PipelineConfig:
    """Load a pipeline file; of one with a route, also the settings of a table."""
    tree = load_tree(str(path))
    if not has_route(tree):
        return load(str(path), [])
    assert RouteTemplate.of(tree).route
    return load(str(path), ["route.value=orders"])


def test_the_readme_shows_the_example_that_is_there() -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert yaml.safe_load(shown[1]) == yaml.safe_load((ROOT / "examples/orders.yaml").read_text())


def test_the_program_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(str(ROOT / "examples/orders.yaml"), [])
    schema = config.decode.declared()
    assert schema is not None
    monkeypatch.chdir(tmp_path)
    orders = lakemark.create(
        config.table.path,
        schema=schema,
        record_key=config.table.record_key,
        partition_by=config.table.partition_by,
        ordering=config.table.ordering,
    )
    now = datetime(2026, 5, 1, tzinfo=UTC)
    rows = [
        {"order_id": key, "region": "north", "status": status, "updated_at": now}
        for key, status in (("1", "paid"), ("2", "created"))
    ]
    orders.upsert(pa.Table.from_pylist(rows, schema))
    (program,) = _blocks(ROOT / "README.md", "python")
    seen: dict[str, Any] = {}
    exec(program, seen)
    assert seen["paid"].column("order_id").to_pylist() == ["1"]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    table = (ROOT / "README.md").read_text().split("| times as fast as Apache Hudi |")[1]
    figures = re.findall(r"\d[\d,.]*\d", table.split("\n\n")[0])
    measured = (ROOT / "benchmarks" / "README.md").read_text()
    assert len(figures) > 8
    assert [figure for figure in figures if figure not in measured] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_lines_of_a_page_fit_a_screen(page: Path) -> None:
    lines = [line for line in page.read_text().splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > WIDEST] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_code_that_a_page_names_exists(page: Path) -> None:
    """Each module path on a page exists.

    If names in parentheses follow a link to a module, the module defines them.
    """
    text = page.read_text()
    for path in re.findall(
        r"`((?:streamer|sinks|checkpoints|transforms|lakemark)/[\w/]+\.py)`", text
    ):
        assert (ROOT / path).is_file(), path
    for link, names in re.findall(r"\]\(([^)#]+\.py)\)\s+\(`([\w.]+)`\)", text):
        code = (page.parent / link).read_text()
        for name in names.split("."):
            assert re.search(rf"^\s*(?:def|class) {name}\b", code, re.MULTILINE), (link, name)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    for file, test in re.findall(r"`((?:\w+/)+test_\w+\.py)(?:::(\w+))?`", page.read_text()):
        path = ROOT / "tests" / file.removeprefix("tests/")
        assert path.is_file(), file
        assert not test or f"def {test}(" in path.read_text(), test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_of_a_page_are_accepted(page: Path) -> None:
    for line in re.findall(r"^(?:[\w.-]+/bin/)?lakemark (.*?)(?:\s+#.*)?$", _shell(page), re.M):
        parser().parse_args(_words(line))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_commands_in_the_text_of_a_page_exist(page: Path) -> None:
    """Commands in the text exist, with their subcommands and options.

    The text may omit arguments that a command needs.
    """
    for line in re.findall(r"`lakemark\s([a-z][^`]*)`", page.read_text()):
        assert_known(_words(line))


def test_an_unknown_command_or_option_in_a_text_is_found() -> None:
    for line in ("table polish TABLE", "table clean TABLE --keep 3", "start", "query --colums id"):
        with pytest.raises(AssertionError, match="no such"):
            assert_known(_words(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_make_targets_of_a_page_are_targets(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    inline = re.findall(r"`make ([\w-]+)[^`]*`", page.read_text())
    for target in inline + re.findall(r"^make (\S+)", _shell(page), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_that_a_page_shows_are_accepted(page: Path, tmp_path: Path) -> None:
    """A shown part of a pipeline file is accepted in place of the same part of an example.

    A shown file that has all parts is accepted as it is.
    """
    (tmp_path / "orders.desc").write_bytes(_descriptors())
    for number, shown in enumerate(_blocks(page, "yaml")):
        part = yaml.safe_load(shown)
        if part.keys() & KUBERNETES:
            continue
        tree = yaml.safe_load((ROOT / "examples/orders.yaml").read_text())
        file = tmp_path / f"{number}.yaml"
        is_whole = {"source", "table"} <= part.keys()
        file.write_text(yaml.safe_dump(part if is_whole else _merged(tree, part)))
        if has_several_topics(part):
            plan_job([str(file)])
        else:
            _load(file)


def _descriptors() -> bytes:
    """Return the descriptors of the message that pages show."""
    files = descriptor_pb2.FileDescriptorSet()
    order = files.file.add(name="orders.proto", package="shop.v1").message_type.add(name="Order")
    order.field.add(name="order_id", number=1, label=1, type=9)
    return files.SerializeToString()


def test_the_grace_period_of_a_pod_is_longer_than_a_stop_takes() -> None:
    (pod,) = [
        part
        for page in PAGES
        for part in map(yaml.safe_load, _blocks(page, "yaml"))
        if part.keys() & KUBERNETES
    ]
    assert pod.keys() == KUBERNETES
    assert pod["terminationGracePeriodSeconds"] > STOP_GRACE_S


def assert_known(words: Sequence[str]) -> None:
    """Check that the command line has each subcommand and each option."""
    command, path = parser(), "lakemark"
    for word in words:
        if word == "--":  # the arguments of another program follow
            return
        subcommands = [a for a in command._actions if isinstance(a, argparse._SubParsersAction)]
        if subcommands:
            assert word in subcommands[0].choices, f"no such command: {path} {word}"
            command, path = subcommands[0].choices[word], f"{path} {word}"
        elif word.startswith("--"):
            option = word.partition("=")[0]
            assert option in command._option_string_actions, f"no such option: {path} {option}"


def _merged(tree: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Replace settings of ``tree``, a parsed pipeline file, by those of ``part``; return it."""
    for section, settings in part.items():
        own = tree.get(section)
        tree[section] = {**own, **settings} if isinstance(own, dict) else settings
    return tree


def _shell(page: Path) -> str:
    return "\n".join(_blocks(page, "sh")).replace("\\\n", " ")


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


def _words(line: str) -> list[str]:
    return [word.strip("'\"") for word in re.findall(r"\"[^\"]*\"|'[^']*'|\S+", line)]
