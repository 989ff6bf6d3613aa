"""The pipeline files of a job: which are found, and which may share a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import load
from streamer.config.topics import matches
from streamer.job.files import find_files
from streamer.job.plan import plan_job
from tests.unit.streamer.job.files import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    return folder


def problems(*files: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        plan_job(files)
    return str(refused.value).splitlines()


def test_folder_contributes_its_pipeline_files_by_name(folder: Path, tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        write(folder, name)
    (folder / "c.yml").write_text("")
    (folder / "order.avsc").write_text("{}")
    write_to = folder / "inner"
    write_to.mkdir()
    write(write_to, "d")
    other = write(tmp_path, "other")
    found = find_files([other, str(folder), "s3://bucket/one.yaml"])
    names = [f"{folder}/{name}" for name in ("a.yaml", "b.yaml", "c.yml")]
    assert found == [other, *names, "s3://bucket/one.yaml"]


def test_empty_folder_and_repeated_file_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"pipelines: the folder has no file \*\.yaml or \*\.yml"):
        find_files([str(folder)])
    file = write(folder, "a")
    with pytest.raises(ConfigError, match=r"a\.yaml: the file is named twice"):
        find_files([str(folder), file])


def test_problems_of_all_files_are_reported_with_their_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    good = write(folder, "good")
    typo = write(folder, "typo", sorce={})
    source = {"bootstrap_servers": "localhost:9092", "topic": "secret"}
    secret = write(
        folder, "secret", source={**source, "consumer": {"sasl.jaas.config": {"env": "NOWHERE"}}}
    )
    merger = write(
        folder, "merger", table={"path": "/t", "record_key": "id", "merger": "nowhere.py:M"}
    )
    found = problems(good, typo, secret, merger)
    assert found[0].startswith(f"{typo}: sorce: ")
    assert found[1].startswith(f"{secret}: source.consumer.sasl.jaas.config: ")
    assert found[2].startswith(f"{merger}: ")
    assert len(found) == 3


def test_pipelines_need_their_own_names_and_tables(folder: Path) -> None:
    files = [
        write(folder, "a"),
        write(folder, "b", name="a"),
        write(
            folder, "c", table={"path": f"file://{folder}/lake/a/", "record_key": "id"}, name="c"
        ),
        write(folder, "d", dead_letters={"path": f"{folder}/lake/a/d"}),
        write(folder, "a2"),  # only the beginning of its path is that of another table
    ]
    assert problems(*files) == [
        f"{files[1]}: name: a is also the name of {files[0]}; logs and metrics need other names",
        f"{files[2]}: table.path: file://{folder}/lake/a/ is in use by table.path of {files[0]}",
        f"{files[2]}: dead_letters.path: file://{folder}/lake/a_dead_letters is in use by "
        f"dead_letters.path of {files[0]}",
        f"{files[3]}: dead_letters.path: {folder}/lake/a/d is in use by table.path of {files[0]}",
    ]


def test_sections_of_the_process_must_agree_and_are_shared(folder: Path) -> None:
    conf = {"master": "local[1]", "conf": {"spark.driver.memory": "2g"}}
    files = [
        write(folder, "a"),
        write(folder, "b", spark=conf, metrics={"port": 9464}),
        write(folder, "c", spark=conf),
    ]
    for config in plan_job(files).configs:
        assert config.spark.master == "local[1]"
        assert config.metrics.port == 9464
    other = write(folder, "d", metrics={"port": 9465})
    (problem,) = problems(*files, other)
    assert problem == (
        f"{other}: metrics: differs from metrics of {files[1]}, but the pipelines share one "
        "process; name it in one of the files"
    )
    plan = plan_job([*files, other], ["metrics.port=9000"])
    assert {one.metrics.port for one in plan.configs} == {9000}


def test_listed_topics_have_a_pipeline_each(folder: Path) -> None:
    source = {"bootstrap_servers": "localhost:9092", "topics": ["shop.a", "shop.b"]}
    table = {"path": "/lake/{topic}/rows", "record_key": "id"}
    dead = {"path": "/lake/{topic}/dead"}
    file = write(folder, "shop", source=source, table=table, dead_letters=dead)
    found = [
        (one.name, one.kafka.topic, one.table.path, one.table.name, one.dead_letters.path)
        for one in plan_job([file]).configs
    ]
    assert found == [
        (topic, topic, f"/lake/{topic}/rows", "rows", f"/lake/{topic}/dead")
        for topic in ("shop.a", "shop.b")
    ]


def with_lock(**options: str) -> dict[str, Any]:
    lock = {"provider": "zookeeper", "options": {"hosts": "zk:2181", "base_path": "/l", **options}}
    return {"mode": "multi_writer", "lock": lock}


def test_two_tables_may_not_name_the_same_lock(folder: Path) -> None:
    files = [write(folder, name, concurrency=with_lock(lock_key="all")) for name in ("a", "b")]
    assert problems(*files) == [
        f"{files[1]}: concurrency.lock.options: they name the lock of table.path {folder}/lake/a "
        f"of {files[0]}; each table needs its own lock"
    ]
    write(folder, "b", concurrency=with_lock(lock_key="b"))
    assert len(plan_job(files).configs) == 2


def test_each_of_several_topics_has_its_own_lock(folder: Path) -> None:
    sections = {
        "source": {"bootstrap_servers": "localhost:9092", "topics": ["a", "b"]},
        "table": {"path": "/lake/{topic}", "record_key": "id"},
    }
    file = write(folder, "shop", **sections, concurrency=with_lock(lock_key="shop_{topic}"))
    configs = plan_job([file]).configs
    names = [one.concurrency.lock.resolved(names_lock=True)["lock_key"] for one in configs]
    assert names == ["shop_a", "shop_b"]
    write(folder, "shop", **sections, concurrency=with_lock(lock_key="shop"))
    assert problems(file) == [
        f"{file}: concurrency.lock.options: expected {{topic}} in the name of the lock, because "
        "each table needs its own lock"
    ]


@pytest.mark.parametrize(
    ("source", "table", "expected"),
    [
        (
            {"topics": ["a", "b"]},
            {"path": "/lake/all"},
            "table.path: /lake/all: expected a text with {topic}, because each topic has its own "
            "pipeline",
        ),
        (
            {"topics": ["a"], "topic_pattern": "a.*"},
            {},
            "source.topic_pattern: give either topics or topic_pattern",
        ),
        ({"topics": "a"}, {}, "source.topics: expected a list of names, such as [a, b]"),
        ({"topics": ["a", "a"]}, {}, "source.topics: expected each name once"),
        (
            {"topic_pattern": "a("},
            {},
            "source.topic_pattern: expected a regular expression of Python, such as 'shop\\..*'",
        ),
        (
            {"topics": [".a"]},
            {},
            "table.path: topic .a would give the table a folder named .a, but such a name must not "
            "begin with a dot, and may have 242 bytes; change the path, or exclude the topic",
        ),
        ({"topic_pattern": "a.*", "topic_interval_s": 0}, {}, "source.topic_interval_s: 0: "),
    ],
)
def test_file_of_several_topics_must_give_each_a_table(
    folder: Path, source: dict[str, Any], table: dict[str, Any], expected: str
) -> None:
    given = {"bootstrap_servers": "localhost:9092", **source}
    path = {"path": "/lake/{topic}", "record_key": "id", **table}
    file = write(folder, "shop", source=given, table=path)
    (problem,) = problems(file)
    assert problem.startswith(f"{file}: {expected}")


def test_pattern_gives_pipelines_for_topics_that_are_found_later(folder: Path) -> None:
    source = {"bootstrap_servers": "localhost:9092", "topic_pattern": "shop[.].*"}
    file = write(
        folder,
        "shop",
        name="of {topic}",
        source=source,
        table={"path": "/lake/{topic}", "record_key": "id"},
        metrics={"port": 9464},
    )
    plan = plan_job(
        [file, write(folder, "other", table={"path": "/lake/shop.x", "record_key": "id"})]
    )
    (template,) = plan.templates
    assert template.pattern == "shop[.].*"
    found = template.pipeline_of("shop.a")
    assert (found.name, found.kafka.topic, found.table.path) == (
        "of shop.a",
        "shop.a",
        "/lake/shop.a",
    )
    assert not plan.shared.add(file, found)
    assert {one.metrics.port for one in plan.configs} == {9464}
    (problem, _) = plan.shared.add(file, template.pipeline_of("shop.x"))
    assert problem.message.startswith("table.path: /lake/shop.x is in use by table.path of ")
    with pytest.raises(ConfigError, match=r"topic x{250} would give the table a folder"):
        template.pipeline_of("x" * 250)


def test_topic_must_give_its_dead_letters_a_path_too(folder: Path) -> None:
    source = {"bootstrap_servers": "localhost:9092", "topic_pattern": ".*"}
    table = {"path": "/lake/of_{topic}/rows", "record_key": "id"}
    dead = {"path": "/dead/{topic}"}
    file = write(folder, "all", source=source, table=table, dead_letters=dead)
    (template,) = plan_job([file]).templates
    with pytest.raises(ConfigError, match=r"^dead_letters\.path: topic \.a would give the table a"):
        template.pipeline_of(".a")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("shop.a", True), ("shop", False), ("my.shop.a", False), ("__consumer_offsets", False)],
)
def test_pattern_matches_whole_names_of_topics_that_are_not_internal(
    topic: str, expected: bool
) -> None:
    assert matches(r"shop\..*|.*offsets", topic) is expected


def test_command_for_one_pipeline_asks_for_the_topic(folder: Path) -> None:
    source = {"bootstrap_servers": "localhost:9092", "topics": ["a", "b"]}
    file = write(folder, "shop", source=source, table={"path": "/l/{topic}", "record_key": "id"})
    with pytest.raises(ConfigError, match=r"several topics; .*: --set source\.topic=NAME"):
        load(file)
    config = load(file, ["source.topic=a"])
    assert (config.name, config.table.path) == ("a", "/l/a")
