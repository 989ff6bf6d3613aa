"""What the documents say is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from streamer.cli import parser
from streamer.config.load import load
from streamer.config.reference import reference
from table.config.property_page import page
from tests.golden.support import support
from tests.interop.oracle import ApacheTable
from transforms.schema_text import TYPES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("*/*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def test_the_reference_of_the_pipeline_file_is_printed_from_the_settings() -> None:
    assert (ROOT / "docs" / "pipeline.md").read_text() == reference()


def test_the_reference_lists_what_each_enumeration_accepts() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    for name, accepted in (
        ("starting", "`earliest`, `latest`, or a value as described."),
        ("isolation", "`read_committed`, `read_uncommitted`."),
        ("metadata_columns", "`topic`, `partition`, `offset`, `timestamp`, `key`."),
        ("policy", "`keep_latest_commits`, `keep_latest_by_hours`, `keep_latest_file_versions`."),
        ("version", "`6`, `8`, `9`."),
        ("provider", "`storage`, `file_system`, `in_process`."),
    ):
        (row,) = [line for line in rows if line.startswith(f"| `{name}` ")]
        assert row.endswith(f" Accepted: {accepted} |")


def test_the_reference_lists_the_types_of_columns() -> None:
    page = reference()
    assert [one.name for one in TYPES if f"\n| `{one.name}`" not in page] == []


def test_the_settings_of_apache_writers_name_the_bucket_index() -> None:
    """As the tests set them, in which Apache Hudi and lakemark write the same tables in turn."""
    page = (ROOT / "docs" / "concurrency.md").read_text()
    options = ApacheTable("orders", ["order_id"], bucket_count=4).write_options()
    for name in ("hoodie.index.type", "hoodie.bucket.index.num.buckets"):
        assert f"\n{name}={options[name]}\n" in page
    assert "\nhoodie.bucket.index.hash.field=order_id\n" in page


def test_what_is_read_is_printed_from_the_tests() -> None:
    assert (ROOT / "docs" / "support.md").read_text() == support()


def test_the_page_of_table_properties_is_printed_from_the_rules() -> None:
    assert (ROOT / "docs" / "foreign_tables.md").read_text() == page()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"env: (\w+)", path.read_text()):
        monkeypatch.setenv(name, "value")
    assert load(str(path), []).source.topic


def test_the_readme_shows_the_example_that_is_there() -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert yaml.safe_load(shown[1]) == yaml.safe_load((ROOT / "examples/orders.yaml").read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_the_commands_of_the_readme_are_commands() -> None:
    lines = re.findall(r"^(?:\.venv/bin/)?lakemark (.*?)(?:\s+#.*)?$", _code(), re.MULTILINE)
    assert lines
    for line in lines:
        parser().parse_args(_words(line))


def test_the_make_targets_of_the_readme_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", _code(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def _code() -> str:
    return "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))


def _words(line: str) -> list[str]:
    return [word.strip("'\"") for word in re.findall(r"\"[^\"]*\"|'[^']*'|\S+", line)]
