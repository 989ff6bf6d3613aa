"""``lakemark doctor``: checks everything that a pipeline needs, and prints a remedy for each fault.

Every check is made, even if others fail. A check is skipped only if it needs another check that has
not succeeded.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from lakemark.errors import HudiError, InvalidConfig, Permanent
from lakemark.storage.rights import RightsMissing
from lakemark.storage.s3_policy import minimal_policy
from lakemark.storage.trial_folders import TrialFolders
from streamer.checks.check import Check, Outcome, Status, run_checks
from streamer.checks.doctor import DELETE_WITHIN_S, WITHIN_S, doctor_checks
from streamer.config.load import load
from streamer.config.secrets import build_redactor
from streamer.source_defaults import with_source_defaults

_LOG = logging.getLogger(__name__)

_WIDTH = max(map(len, Status))
_S3 = "s3://"


def execute(arguments: argparse.Namespace) -> int:
    """Print one line for each check, and the policy for missing rights on S3.

    Raises:
        ConfigError: the pipeline file is not valid.
        InvalidConfig: checks failed, all of them because a setting or a right is wrong.
        Permanent: checks failed, at least one of them for another reason.
    """
    config = load(arguments.pipeline, arguments.overrides)
    arguments.redacted = build_redactor(config)
    with suppress(HudiError):  # the check of the source reports it
        config = with_source_defaults(config)
    print_outcome = _print_json if arguments.json else _print_line
    outcomes = list[Outcome]()
    with _closed_at_end() as folders:
        checks = doctor_checks(config, folders)
        for outcome in _in_order(checks, run_checks(checks, WITHIN_S)):
            print_outcome(outcome, arguments.redacted)
            outcomes.append(outcome)
    if not arguments.json:
        _print_policy(outcomes)
    _raise_failures(outcomes)
    return 0


@contextmanager
def _closed_at_end() -> Iterator[TrialFolders]:
    """Yield folders for trials; at the end, wait until abandoned checks have deleted them."""
    folders = TrialFolders()
    try:
        yield folders
    finally:
        for url in folders.close(DELETE_WITHIN_S):
            _LOG.warning(
                "%s may remain, because its store does not answer; delete it, or repeat the "
                "command in an hour, which deletes such folders",
                url,
            )


def _in_order(checks: Sequence[Check], outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Yield the outcomes in the order of the checks, each as early as possible."""
    waiting, known = list(checks), dict[str, Outcome]()
    for outcome in outcomes:
        known[outcome.check.name] = outcome
        while waiting and waiting[0].name in known:
            yield known[waiting.pop(0).name]


def _print_line(outcome: Outcome, redacted: Callable[[str], str]) -> None:
    text = redacted(f"{outcome.check.name}: {_text_of(outcome)}")
    print(f"{outcome.status:<{_WIDTH}}  {text}", flush=True)


def _print_json(outcome: Outcome, redacted: Callable[[str], str]) -> None:
    row: dict[str, object] = {
        "check": redacted(outcome.check.name),
        "status": outcome.status.value,
        "text": redacted(_text_of(outcome)),
    }
    if urls := _urls_without_rights([outcome]):
        row["policy"] = minimal_policy(urls)
    print(json.dumps(row, ensure_ascii=False), flush=True)


def _text_of(outcome: Outcome) -> str:
    failure = outcome.failure
    if outcome.status is Status.FAILED and not isinstance(failure, HudiError | OSError):
        return f"unexpected {type(failure).__name__}: {failure}"
    return outcome.text


def _print_policy(outcomes: Iterable[Outcome]) -> None:
    urls = _urls_without_rights(outcomes)
    if urls:
        print("\nThis policy of AWS allows what is missing on S3, and no more than is needed:")
        print(json.dumps(minimal_policy(urls), indent=2))


def _urls_without_rights(outcomes: Iterable[Outcome]) -> list[str]:
    urls = [one.failure.url for one in outcomes if isinstance(one.failure, RightsMissing)]
    return [url for url in urls if url.startswith(_S3)]


def _raise_failures(outcomes: Sequence[Outcome]) -> None:
    failures = [one.failure for one in outcomes if one.status is Status.FAILED]
    if failures:
        message = f"{len(failures)} of {len(outcomes)} checks failed"
        is_misused = all(isinstance(one, InvalidConfig) for one in failures)
        raise (InvalidConfig if is_misused else Permanent)(message)
