"""Describes what became of the options and properties of a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.pipeline_text import comment_lines
from streamer.migration.secrets import variables_in
from streamer.migration.translation import Translation

_CHANGING = "without counterpart, and the rows depend on them"
_OTHERS = "without counterpart"


def render_report(translation: Translation, job: Job) -> str:
    """Return the report: first what the user must do, last what has no effect."""
    missing = [one for one in translation.outcomes if isinstance(one, Missing)]
    parts = [
        *_section(_CHANGING, _texts((one for one in missing if one.changes_rows), job)),
        *_section(_OTHERS, _texts((one for one in missing if not one.changes_rows), job)),
        *_section("environment variables to set", _variables(translation.outcomes, job)),
        *_section("without an effect in lakemark", _texts(_harmless(translation.outcomes), job)),
        *_section("no pipeline file is printed", list(translation.problems)),
    ]
    return "".join(parts)


def render_incomplete(translation: Translation, job: Job) -> list[str]:
    """Return the comment that says that the pipeline file is not complete, and what to do.

    Returns:
        The lines of the comment; none if the pipeline writes the same rows as the job.
    """
    if translation.is_complete:
        return []
    changing = (
        one for one in translation.outcomes if isinstance(one, Missing) and one.changes_rows
    )
    text = (
        "NOT COMPLETE: with this file, a pipeline would not write the same rows as the job, "
        "because of the following settings of the job. Do what is said about each of them, then "
        "delete these lines:"
    )
    parts = (comment_lines(f"- {one}", "") for one in _texts(changing, job))
    return ["#", *comment_lines(text, ""), *chain.from_iterable(parts)]


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:\n"
        yield from (f"  {line}\n" for line in dict.fromkeys(lines))


def _texts(outcomes: Iterable[Missing | Harmless], job: Job) -> list[str]:
    """Return one line for each reason, with the names as the user wrote them."""
    by_text: dict[str, list[str]] = {}
    for one in outcomes:
        text = one.remedy if isinstance(one, Missing) else one.reason
        by_text.setdefault(text, []).extend(job.given.get(name, name) for name in one.names)
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in by_text.items()]


def _harmless(outcomes: Iterable[Outcome]) -> Iterator[Harmless]:
    """Yield the names that have no effect, without those that also decide a setting."""
    listed = list(outcomes)
    others = {name for one in listed if not isinstance(one, Harmless) for name in one.names}
    for one in listed:
        names = tuple(name for name in one.names if name not in others)
        if isinstance(one, Harmless) and names:
            yield Harmless(names, one.reason)


def _variables(outcomes: Iterable[Outcome], job: Job) -> list[str]:
    """Return one line for each environment variable to which the pipeline file refers."""
    return [
        f"{variable}: from {', '.join(job.given.get(name, name) for name in one.names)}"
        for one in outcomes
        if isinstance(one, Sets)
        for variable in variables_in(one.value)
    ]
