from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.key_generators import KeyGeneratorType
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.keygen.partition_path import DEFAULT_PARTITION, escape, partition_paths
from lakemark.storage.storage import check_path

_SIMPLE = KeyGenerator(KeyGeneratorConfig(("id",), ("region",)))


def keys_of(generator: KeyGenerator, **columns: list[object]) -> list[str | None]:
    keys: list[str | None] = generator.record_keys(pa.table(columns)).to_pylist()
    return keys


def paths_of(
    values: list[str | None],
    *,
    hive_style: bool = False,
    url_encode: bool = False,
    slash_separated_dates: bool = False,
) -> list[str | None]:
    config = KeyGeneratorConfig(
        ("id",),
        ("region",),
        hive_style=hive_style,
        url_encode=url_encode,
        slash_separated_dates=slash_separated_dates,
    )
    rows = pa.table({"region": pa.array(values, pa.string())})
    paths: list[str | None] = KeyGenerator(config).partition_paths(rows).to_pylist()
    return paths


def nested_paths_of(values: list[str]) -> list[str | None]:
    paths: list[str | None] = partition_paths(
        ["region"], [pa.array(values)], hive_style=False, url_encode=False, nested_fields=["region"]
    ).to_pylist()
    return paths


def test_simple_key_is_the_value_and_must_not_be_empty() -> None:
    assert keys_of(_SIMPLE, id=["a", "", None, "b:c,d"]) == ["a", None, None, "b:c,d"]


def test_a_complex_key_names_its_parts() -> None:
    generator = KeyGenerator(KeyGeneratorConfig(("id", "n"), ("region",)))
    assert keys_of(generator, id=["a", "", None, None], n=[1, 2, 3, None]) == [
        "id:a,n:1",
        "id:__empty__,n:2",
        "id:__null__,n:3",
        None,
    ]


_parts = st.none() | st.sampled_from(["", "x", "x,b:y", "y,c:z", "__null__", "__empty__", ",", ","])


@given(st.lists(st.tuples(_parts, _parts, _parts), unique=True, max_size=30))
def test_unambiguous_keys_identify_one_row(
    parts: list[tuple[str | None, ...]],
) -> None:
    generator = KeyGenerator(KeyGeneratorConfig(("a", "b", "c")))
    columns = [pa.array([row[at] for row in parts], pa.string()) for at in range(3)]
    rows = pa.table(columns, names=["a", "b", "c"])
    keys, ambiguous = generator.record_keys(rows), generator.find_ambiguous_keys(rows)
    clear = keys.filter(pc.invert(ambiguous)).drop_null().to_pylist()
    assert len(set(clear)) == len(clear)


def test_a_key_of_one_field_is_never_ambiguous() -> None:
    rows = pa.table({"id": ["__null__", "a,id:b", None]})
    assert _SIMPLE.find_ambiguous_keys(rows).to_pylist() == [False] * 3


def test_one_field_keeps_its_name_only_in_a_table_declared_complex() -> None:
    declared = KeyGeneratorConfig(("id",), ("region",), KeyGeneratorType.COMPLEX)
    assert keys_of(KeyGenerator(declared), id=["a", "", None]) == ["id:a", None, None]
    assert keys_of(KeyGenerator(KeyGeneratorConfig(("id",))), id=["a"]) == ["a"]
    assert keys_of(KeyGenerator(KeyGeneratorConfig(("id", "n"))), id=["a"], n=[1]) == ["id:a,n:1"]


@pytest.mark.parametrize(
    ("fields", "partitions", "kind"),
    [
        (("id",), (), KeyGeneratorType.NON_PARTITION),
        (("id", "n"), (), KeyGeneratorType.NON_PARTITION),
        (("id",), ("p",), KeyGeneratorType.SIMPLE),
        (("id", "n"), ("p",), KeyGeneratorType.COMPLEX),
        (("id",), ("p", "q"), KeyGeneratorType.COMPLEX),
        ((), (), KeyGeneratorType.NON_PARTITION),
        ((), ("p",), KeyGeneratorType.SIMPLE),
        ((), ("p", "q"), KeyGeneratorType.COMPLEX),
    ],
)
def test_key_generator_type_follows_from_the_fields(
    fields: tuple[str, ...], partitions: tuple[str, ...], kind: KeyGeneratorType
) -> None:
    assert KeyGeneratorConfig(fields, partitions).effective_kind is kind


@pytest.mark.parametrize(
    ("fields", "partitions", "kind"),
    [
        (("id",), ("p",), KeyGeneratorType.NON_PARTITION),
        (("id",), (), KeyGeneratorType.SIMPLE),
        (("id", "n"), ("p",), KeyGeneratorType.SIMPLE),
    ],
)
def test_fields_that_do_not_fit_the_key_generator_are_refused(
    fields: tuple[str, ...], partitions: tuple[str, ...], kind: KeyGeneratorType
) -> None:
    with pytest.raises(InvalidConfig):
        KeyGeneratorConfig(fields, partitions, kind)


def test_automatic_keys_are_not_computed_from_rows() -> None:
    with pytest.raises(InvalidConfig, match="record keys cannot be computed from its rows"):
        KeyGenerator(KeyGeneratorConfig(())).record_keys(pa.table({"id": ["a"]}))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([-7], pa.int8()), "-7"),
        (pa.array([2**63 - 1]), "9223372036854775807"),
        (pa.array([True]), "true"),
        (pa.array([date(2026, 1, 31)]), "2026-01-31"),
        (pa.array([2932897], pa.int32()).cast(pa.date32()), "+10000-01-01"),
        (pa.array([Decimal("1.50")], pa.decimal128(12, 2)), "1.50"),
        (pa.array([Decimal("0.0000001")], pa.decimal128(12, 7)), "1E-7"),
        (pa.array([datetime(2026, 1, 1, tzinfo=UTC)]), "1767225600000000"),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("s")), "1767225600000"),  # noqa: DTZ001
        (pa.array([1767225600123456789], pa.timestamp("ns")), "1767225600123456"),
        (pa.array([time(0, 0, 1)], pa.time32("s")), "1000"),
        (pa.array([time(0, 0, 1)], pa.time64("us")), "1000000"),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array(["a"], pa.large_string()), "a"),
    ],
    ids=lambda v: str(v.type) if isinstance(v, pa.Array) else v,
)
def test_key_values_print_as_in_apache_hudi(values: pa.Array, text: str) -> None:
    assert _SIMPLE.record_keys(pa.table({"id": values})).to_pylist() == [text]


@pytest.mark.parametrize("values", [[1.5], [b"x"], [["a"]], [{"a": 1}]], ids=repr)
def test_a_type_without_an_agreed_text_is_refused(values: list[object]) -> None:
    with pytest.raises(InvalidConfig, match="'id' of type"):
        keys_of(_SIMPLE, id=values)


def test_a_dotted_field_is_found_inside_a_struct() -> None:
    generator = KeyGenerator(KeyGeneratorConfig(("meta.id",)))
    assert keys_of(generator, meta=[{"id": 5}, {"id": None}]) == ["5", None]
    with pytest.raises(InvalidConfig, match=r"meta\.id"):
        keys_of(generator, other=[1])


def test_null_and_empty_values_share_the_default_partition() -> None:
    assert paths_of([None, "", "eu"]) == [DEFAULT_PARTITION, DEFAULT_PARTITION, "eu"]
    hive = f"region={DEFAULT_PARTITION}"
    assert paths_of([None, "", "eu"], hive_style=True) == [hive, hive, "region=eu"]


def test_value_outside_of_its_folder_is_rejected() -> None:
    bad = [
        "..",
        ".",
        "a/b",
        "/a",
        "a/",
        "a\\b",
        "a\nb",
        "a\x7fb",
        ".hoodie",
        ".hoodie_x",
        "x" * 256,
        ".x.crc",
        ".crc",
        "10:00",
        "=x",
        "x=",
        "=",
        "__all_partitions__",
    ]
    assert paths_of([*bad]) == [None] * len(bad)
    nested = nested_paths_of(["2026/01/31", "a/../b", "a//b", "/a", ".hoodie/x", "a/.hoodie"])
    assert nested == ["2026/01/31", None, None, None, None, None]


def test_value_that_apache_hudi_can_list_is_accepted() -> None:
    good = ["order#42", "#7", "x.crc", ".x", "_x", "k=v", "a b", "%41", "crc"]
    assert paths_of([*good]) == good
    later = nested_paths_of(["d/10:00", "10:00/d", "d/__all_partitions__", "d/=x"])
    assert later == ["d/10:00", None, "d/__all_partitions__", None]
    bad = ["10:00", "=x", "x=", ".x.crc", "__all_partitions__"]
    hive = paths_of([*bad], hive_style=True)
    assert hive == [None, *(f"region={value}" for value in bad[1:])]
    encoded = paths_of([*bad], url_encode=True)
    assert encoded == ["10%3A00", "%3Dx", "x%3D", None, None]


def test_url_encoding_makes_most_values_valid() -> None:
    assert paths_of(["a/b", "r 1=x", "100%", "a\nb", "ü"], url_encode=True) == [
        "a%2Fb",
        "r 1%3Dx",
        "100%25",
        "a%0Ab",
        "ü",
    ]
    assert paths_of([".."], url_encode=True) == [None]


def test_slash_separated_dates_have_three_folders() -> None:
    values = ["2026-01-31", None, "", "2026-01", "2026/01/31", "2026-01-31-05", "..-..-..", "x"]
    default = DEFAULT_PARTITION
    for url_encode in (False, True):
        paths = paths_of([*values], slash_separated_dates=True, url_encode=url_encode)
        assert paths == ["2026/01/31", default, default, None, None, None, None, None]


def test_slash_separated_dates_need_one_partition_field_without_its_name() -> None:
    for fields, kind, hive_style in (
        (("a", "b"), None, False),
        (("a",), KeyGeneratorType.CUSTOM, False),
        (("a",), None, True),
    ):
        with pytest.raises(InvalidConfig, match="slash-separated dates need"):
            KeyGeneratorConfig(
                ("id",), fields, kind, hive_style=hive_style, slash_separated_dates=True
            )


def test_several_fields_give_nested_folders() -> None:
    config = KeyGeneratorConfig(("id",), ("a", "b"), hive_style=True, url_encode=True)
    rows = pa.table({"a": ["x", None, "x"], "b": [1, 2, None]})
    assert KeyGenerator(config).partition_paths(rows).to_pylist() == [
        "a=x/b=1",
        f"a={DEFAULT_PARTITION}/b=2",
        f"a=x/b={DEFAULT_PARTITION}",
    ]


def test_path_of_unpartitioned_table_is_the_root() -> None:
    generator = KeyGenerator(KeyGeneratorConfig(("id",)))
    assert generator.partition_paths(pa.table({"id": [1, 2]})).to_pylist() == ["", ""]


@settings(deadline=None)
@given(
    values=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)),
    hive_style=st.booleans(),
    url_encode=st.booleans(),
)
def test_every_path_is_accepted_by_storage(
    values: list[str | None], hive_style: bool, url_encode: bool
) -> None:
    paths = paths_of(values, hive_style=hive_style, url_encode=url_encode)
    prefix = "region=" if hive_style else ""
    for value, path in zip(values, paths, strict=True):
        if path is not None:
            check_path(f"{path}/file")
            assert not path.startswith(".hoodie")
            text = escape(value) if value and url_encode else value
            assert path == prefix + (text or DEFAULT_PARTITION)


def test_key_part_containing_the_next_field_is_ambiguous() -> None:
    generator = KeyGenerator(KeyGeneratorConfig(("a", "b")))
    rows = pa.table({"a": ["x,b:y", "x", "x"], "b": ["z", "y,b:z", "z"]})
    first, second, other = generator.record_keys(rows).to_pylist()
    assert first == second != other
    assert generator.find_ambiguous_keys(rows).to_pylist() == [True, False, False]
