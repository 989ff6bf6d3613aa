"""Pipeline files with a route: what is refused, and what the commands make of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.cli import main
from streamer.config.errors import ConfigError
from streamer.config.load import load
from streamer.job.plan import plan_job
from streamer.routing.template import RouteTemplate


def tree(folder: Path, **changes: Mapping[str, object]) -> dict[str, Any]:
    sections: dict[str, Any] = {
        "source": {"bootstrap_servers": "localhost:1", "topic": "shop"},
        "route": {"field": "type"},
        "table": {"path": f"{folder}/{{value}}", "record_key": "id"},
    }
    for section, settings in changes.items():
        sections[section] = {**sections.get(section, {}), **settings}
    return sections


def write(folder: Path, **changes: Mapping[str, object]) -> str:
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump(tree(folder, **changes)))
    return str(path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"route": {"header": "type"}}, "route: expected either field or header"),
        ({"route": {"field": None}}, "route: expected either field or header"),
        ({"route": {"max_tables": 0}}, "route.max_tables"),
        ({"route": {"allow": "("}}, "route.allow"),
        ({"route": {"allow": ["a", "a"]}}, "route.allow"),
        ({"table": {"path": "lake/orders"}}, "table.path: lake/orders: expected a text with"),
        ({"table": {"name": "orders"}}, "table.name: orders: expected a text with {value}"),
        ({"table": {"path": "s3://{value}/orders"}}, "not in the name of the bucket"),
        ({"dead_letters": {"path": "lake/bad"}}, "dead_letters.path"),
        ({"compaction": {"mode": "async"}}, "compaction.mode: async is not possible"),
        ({"run": {"mode": "once"}, "source": {"ending_offsets": {0: 1}}}, "source.ending_offsets"),
        ({"decode": {"format": "csv", "schema": {"id": "string"}}}, "route.field: only values"),
        ({"route": {"allow": ["a", "b c"]}}, "route.allow: 'b c' names the table, but no table"),
        ({"route": {"default": "../x"}}, "route.default: '../x'"),
        ({"source": {"commit_group": "g-{value}"}}, "source.commit_group: g-{value}: the topic"),
        ({"source": {"topics": ["a", "b"]}}, "route: a route divides one topic"),
        ({"snapshot": {"path": "export", "format": "parquet"}}, "snapshot: is not possible"),
    ],
)
def test_unsuitable_settings_are_refused_by_name(
    tmp_path: Path, changes: Mapping[str, Mapping[str, object]], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        RouteTemplate.of(tree(tmp_path, **changes))
    assert problem in str(refused.value)


def test_fixed_name_in_a_catalog_is_refused(tmp_path: Path) -> None:
    catalog = {"kind": "hive", "uri": "thrift://localhost:1", "table": "orders"}
    with pytest.raises(ConfigError, match=r"catalogs\.0\.table: orders: each value"):
        RouteTemplate.of({**tree(tmp_path), "catalogs": [catalog]})


def test_batches_of_a_route_are_larger_unless_their_size_is_set(tmp_path: Path) -> None:
    sizes = {}
    for name, source in {"default": {}, "set": {"max_records_per_batch": 500}}.items():
        file = write(tmp_path, source=source)
        of_table = load(file, ["route.value=orders"]).kafka.max_records_per_batch
        sizes[name] = RouteTemplate.of(tree(tmp_path, source=source)).source.max_records_per_batch
        assert sizes[name] == of_table
    assert sizes == {"default": 2_000_000, "set": 500}


def test_a_command_works_on_the_table_of_the_value_that_it_names(tmp_path: Path) -> None:
    config = load(write(tmp_path), ["route.value=orders"])
    assert config.route is None
    assert config.table.path == f"{tmp_path}/orders"
    assert config.dead_letters.path == f"{tmp_path}/orders_dead_letters"
    with pytest.raises(ConfigError, match=r"route\.value: .* --set route.value=NAME"):
        load(write(tmp_path))


def test_validate_checks_the_whole_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = {"url": "localhost:1", "base_path": "/locks", "lock_key": "shop_{value}"}
    lock = {"provider": "zookeeper", "options": options}
    file = write(tmp_path, concurrency={"mode": "multi_writer", "lock": lock})
    assert main(["validate", file]) == 0
    output = capfd.readouterr()
    assert "sampled-value" not in output.out + output.err
    assert "lakemark doctor --set route.value=NAME checks:" in output.err
    assert "preview" not in output.err  # it is refused
    shown = yaml.safe_load(output.out)
    assert shown["table"]["path"] == f"{tmp_path}/{{value}}"
    assert shown["dead_letters"]["path"] == f"{tmp_path}/{{value}}_dead_letters"
    assert shown["concurrency"]["lock"]["options"]["lock_key"] == "shop_{value}"
    assert shown["route"]["field"] == "type"
    assert main(["validate", write(tmp_path, route={"max_tables": 0})]) == 2
    assert "route.max_tables" in capfd.readouterr().err


def test_commands_that_cannot_route_are_refused_with_a_remedy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path)
    assert main(["preview", file]) == 2
    assert "remove the section" in capfd.readouterr().err
    assert main(["doctor", file]) == 2
    assert "--set route.value=NAME" in capfd.readouterr().err
    assert main(["run", file, "--set", "route.value=orders"]) == 2
    assert "a run writes all of them" in capfd.readouterr().err
    with pytest.raises(ConfigError, match=r"route: needs a process of its own"):
        plan_job([file, str(tmp_path / "other.yaml")])


def test_paths_of_the_stream_are_next_to_the_tables(tmp_path: Path) -> None:
    template = RouteTemplate.of(
        tree(tmp_path, table={"path": "s3://lake/raw/{value}/rows"}, source={"checkpoint_id": "x"})
    )
    assert template.positions.url == "s3://lake/raw/.lakemark/shop.x"
    assert template.letters_path == "s3://lake/raw/shop_dead_letters"
    assert template.table_of("orders").name == "shop/orders"


@pytest.mark.parametrize("name", ["bad", "orders_bad"])
def test_no_table_contains_dead_letters(tmp_path: Path, name: str) -> None:
    letters = {"bad": "bad/{value}", "orders_bad": "{value}_bad"}[name]
    template = RouteTemplate.of(tree(tmp_path, dead_letters={"path": f"{tmp_path}/{letters}"}))
    reason = template.refuse(name)
    assert reason is not None
    assert "dead letters" in reason
    assert template.refuse("orders") is None
