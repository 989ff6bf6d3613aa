"""Each codec gives the same result as the library that could replace it."""

from __future__ import annotations

import pytest

from benchmarks import codecs


def test_codecs_and_libraries_give_the_same_results(capsys: pytest.CaptureFixture[str]) -> None:
    codecs.main(["--rows", "300"])  # raises if two results differ
    lines = capsys.readouterr().out.splitlines()[2:]
    assert {line.split(" |")[0].split(",")[0] for line in lines} == {
        "| codec.avro_rows",
        "| codec.avro_container",
        "| transforms.decode.json",
        "| transforms.decode.protobuf",
        "| codec.java_hash",
        "| codec.murmur2",
        "| codec.hfile",
    }
