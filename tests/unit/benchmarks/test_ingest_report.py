"""The report of the ingest benchmark: Markdown, JSON, and the plot of the headline."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import plot
from benchmarks.ingest.__main__ import as_json
from benchmarks.ingest.engines import ENGINES
from benchmarks.ingest.measure import Outcome
from benchmarks.ingest.report import WorkloadReport, overview
from benchmarks.peers.contract import Answer, Batch
from benchmarks.workloads.catalog import WORKLOADS

SVG = "{http://www.w3.org/2000/svg}"
ABOUT = {
    "cpus": 2,
    "memory": "24 GiB",
    "spark": "4.0.0",
    "date": "2026-11-26 12:00 UTC",
    "lakemark": "1a2b3c4d",
    "load_before_the_run": "0.10",
}


def answer(batch_s: float, records: int = 1000) -> Answer:
    """Three batches of the same duration."""
    return Answer.of([Batch(records, n * batch_s, (n + 1) * batch_s) for n in range(3)])


def large() -> WorkloadReport:
    outcome = Outcome(
        {
            "floor": [answer(0.5), answer(0.4), answer(0.25)],
            "lakemark": [answer(1.0), answer(0.8), answer(0.5)],
            "hudi": [answer(4.0), answer(4.0), answer(4.0)],
        },
        {"iceberg": "runs at most 1,000,000 records"},
        {"delta": "x" * 10_000 + "the table differs\n"},
    )
    return WorkloadReport("upserts_2m", WORKLOADS["upserts_2m"], outcome)


def small() -> WorkloadReport:
    answers = {"lakemark": [answer(0.25, 100)] * 3, "hudi": [answer(1.5, 100)] * 3}
    return WorkloadReport("small_batches", WORKLOADS["small_batches"], Outcome(answers))


def test_a_workload_is_a_table_of_medians_with_their_spread() -> None:
    rows = [line.strip("| ").split(" | ") for line in large().as_lines() if "|" in line]
    names = ["records/s", "steady", "first batch", "batch", "lakemark is faster"]
    assert [name.strip() for name in rows[0] if name.strip()] == names
    by_engine = {row[0]: row[1:] for row in rows[2:]}
    assert by_engine["hudi"] == [*["250"] * 2, *["4.00 s"] * 2, "5.00 (4.00 to 8.00)"]
    assert by_engine["lakemark"][1] == "1,250 (1,000 to 2,000)"
    assert by_engine["floor"][-1] == "0.50"
    assert by_engine.keys() == {"floor", "lakemark", "hudi"}


def test_engines_without_figures_are_named_with_the_reason() -> None:
    lines = list(large().as_lines())
    assert "- `iceberg` did not run: it runs at most 1,000,000 records." in lines
    (failure,) = [line for line in lines if line.startswith("- `delta` failed")]
    assert "the table differs" in failure and len(failure) < 400


def test_the_figure_of_small_batches_is_their_time() -> None:
    (row,) = [line for line in small().as_lines() if line.startswith("| hudi")]
    assert row.endswith("| 1.50 s | 6.00 |")


def test_the_overview_has_the_headline_of_each_workload() -> None:
    lines = overview([large(), small()])
    assert lines[2:] == [
        "|  | floor | lakemark | hudi |",
        "|---|---|---|---|",
        "| upserts_2m | 2,500 | 1,250 | 250 |",
        "| small_batches |  | 0.25 s | 1.50 s |",
    ]


def test_the_json_keeps_each_batch_of_each_repeat() -> None:
    report = json.loads(json.dumps(as_json(ABOUT, [large()])))["workloads"]["upserts_2m"]
    assert report["batches_s"]["lakemark"] == [[1.0] * 3, pytest.approx([0.8] * 3), [0.5] * 3]
    assert report["spreads"]["hudi"]["batch_s"] == {"median": 4.0, "low": 4.0, "high": 4.0}
    assert report["not_run"].keys() == {"iceberg"} and report["failed"].keys() == {"delta"}


def drawn(*reports: WorkloadReport) -> ElementTree.Element:
    return ElementTree.fromstring(plot.draw(json.loads(json.dumps(as_json(ABOUT, reports)))))


def texts(svg: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


def test_the_plot_has_the_names_and_values_of_all_engines_as_text() -> None:
    shown = texts(drawn(large(), small()))
    for engine in ("floor", "lakemark", "hudi"):
        assert ENGINES[engine].title in shown
    for value in ("2,500", "1,250", "250", "0.25 s", "1.50 s"):
        assert value in shown
    (size,) = [text for text in shown if text.startswith("upserts_2m: ")]
    assert "2,000,000 records in batches of 200,000" in size and "median of 3 runs" in size
    assert "2 cores" in shown[-1] and "load 0.10 before the run" in shown[-1]


def test_the_bars_of_a_panel_have_one_scale() -> None:
    widths = {
        bar.attrib["class"]: float(bar.attrib["width"])
        for bar in drawn(large()).iter(f"{SVG}rect")
        if bar.attrib["class"] != "paper"
    }
    assert widths["floor"] / widths["ours"] == pytest.approx(2, rel=0.01)
    assert widths["ours"] / widths["peer"] == pytest.approx(5, rel=0.01)


def test_the_plot_stays_inside_its_frame() -> None:
    svg = drawn(large(), small())
    height = float(svg.attrib["height"])
    for bar in svg.iter(f"{SVG}rect"):
        assert float(bar.attrib["x"]) + float(bar.attrib["width"]) <= plot.WIDTH
        assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= height
    assert all(float(text.attrib["y"]) < height for text in svg.iter(f"{SVG}text"))


def test_the_plot_has_colours_for_dark_pages() -> None:
    (style,) = drawn(large()).iter(f"{SVG}style")
    assert "prefers-color-scheme: dark" in (style.text or "")


def test_the_plot_needs_no_small_batches_and_shows_single_runs() -> None:
    report = WorkloadReport("avro", WORKLOADS["avro"], Outcome({"hudi": [answer(1.0)]}))
    shown = texts(drawn(report))
    assert any("1 run" in text for text in shown)
    assert texts(drawn(WorkloadReport("avro", WORKLOADS["avro"], Outcome()))) != []


def test_the_module_draws_a_saved_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "report.json", tmp_path / "plot.svg"
    source.write_text(json.dumps(as_json(ABOUT, [large()])))
    monkeypatch.setattr("sys.argv", ["plot", str(source), str(target)])
    plot.main()
    assert ElementTree.parse(target).getroot().tag == f"{SVG}svg"
