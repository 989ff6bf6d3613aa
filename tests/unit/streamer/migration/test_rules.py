"""Each option and property of HoodieStreamer has a rule, under its current and its former names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import InvalidConfig
from streamer.migration.command_line import parse_arguments
from streamer.migration.rule import Direct, NoCounterpart, Rule
from streamer.migration.rules import OPTIONS, SUBJECTS, canonical_name, find_rule
from tests.docs.test_settings_in_texts import accepts

#: The properties of the configuration classes in the Spark bundle of Apache Hudi 1.2.0.
APACHE = (Path(__file__).parent / "apache_hudi_1_2_0.txt").read_text().split()

RULES = [rule for rules in SUBJECTS.values() for rule in rules]


def test_each_property_of_apache_hudi_has_a_rule() -> None:
    assert [name for name in APACHE if find_rule(canonical_name(name)) is None] == []


def test_each_rule_is_found_by_its_name() -> None:
    names = [rule.key for rule in RULES]
    assert [name for name in names if names.count(name) > 1] == []
    plain = [rule for rule in RULES if not rule.key.endswith("*")]
    assert [rule.key for rule in plain if find_rule(canonical_name(rule.key)) is not rule] == []


def test_settings_of_rules_exist() -> None:
    direct = [rule.effect.setting for rule in RULES if isinstance(rule.effect, Direct)]
    assert direct
    assert [path for path in direct if not accepts(path, "")] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_values_that_ask_for_nothing_are_in_lower_case(rule: Rule) -> None:
    if isinstance(rule.effect, NoCounterpart):
        assert [word for word in rule.effect.unless if word != word.lower()] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "hoodie.deltastreamer.source.kafka.topic",
            "hoodie.streamer.source.kafka.topic",
        ),
        (
            "hoodie.deltastreamer.keygen.timebased.timezone",
            "hoodie.keygen.timebased.timezone",
        ),
        ("hoodie.cleaner.commits.retained", "hoodie.clean.commits.retained"),
        ("hoodie.table.precombine.field", "hoodie.table.ordering.fields"),
    ],
)
def test_former_name_is_the_current_one(old: str, new: str) -> None:
    assert canonical_name(old) == new
    assert find_rule(new) is not None


def test_name_that_never_existed_is_unknown() -> None:
    """HoodieStreamer ignores it, so it must not become a setting."""
    name = "hoodie.deltastreamer.source.json.skip.invalid.records"
    assert find_rule(canonical_name(name)) is None


def test_options_are_parsed_as_a_shell_passes_them() -> None:
    words = ["--continuous", "--source-ordering-field", "ts", "--hoodie-conf", "a=b c"]
    assert parse_arguments(words, OPTIONS) == [
        ("--continuous", "true"),
        ("--source-ordering-fields", "ts"),
        ("--hoodie-conf", "a=b c"),
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--continous"], "--continous is not an option of HoodieStreamer; did you mean --contin"),
        (["--op"], "--op of HoodieStreamer needs a value"),
        (["--master", "yarn"], "--master is not an option of HoodieStreamer"),
        (["x.jar", "--op", "UPSERT"], "a word that belongs to no option"),
        (["--pasword=geheim"], "^--pasword is not an option"),
    ],
)
def test_wrong_argument_is_refused_without_its_value(words: list[str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message) as refused:
        parse_arguments(words, OPTIONS)
    assert "geheim" not in str(refused.value)
