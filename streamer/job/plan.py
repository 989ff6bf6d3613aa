"""The pipelines of a job, from its files. All problems of all files are reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lakemark.errors import InvalidConfig
from streamer.checks.start import check_locally
from streamer.config.errors import ConfigError, Problem
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.load import Tree, load_tree, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.routed_tree import has_route
from streamer.config.secrets import build_redactor
from streamer.config.topics import check_template, for_topic, has_several_topics
from streamer.job.shared_settings import SharedSettings

#: The topic with which a template is validated before its topics are known.
_SAMPLE_TOPIC = "topic"


@dataclass(frozen=True)
class TopicTemplate:
    """A file that describes a pipeline for each topic that matches a pattern.

    Attributes:
        file: the name of the file.
        sample: the pipeline of a topic that need not exist: its broker, pattern and retries are
            those of all pipelines.
    """

    file: str
    sample: PipelineConfig
    _tree: Tree = field(repr=False)

    @property
    def pattern(self) -> str:
        """The pattern of the topics."""
        assert self.sample.kafka.topic_pattern is not None
        return self.sample.kafka.topic_pattern

    def pipeline_of(self, topic: str) -> PipelineConfig:
        """Return the pipeline of a topic.

        Raises:
            ConfigError: the topic would give the table a path that no table may have.
        """
        return validated(for_topic(self._tree, topic))


@dataclass
class JobPlan:
    """What a job runs.

    Attributes:
        configs: the pipelines that are known before the start.
        templates: the files whose topics are found while the job runs.
        shared: what the pipelines have in common. Pipelines that are found later are added here.
    """

    configs: list[PipelineConfig]
    templates: list[TopicTemplate]
    shared: SharedSettings

    @property
    def process(self) -> PipelineConfig:
        """A pipeline with the sections of the process (``spark``, ``metrics``)."""
        samples = (template.sample for template in self.templates)
        return self.shared.share(next(iter([*self.configs, *samples])))

    def names(self, topic: str, bootstrap_servers: str) -> bool:
        """Return whether a file names this topic itself, so that no pattern adds it."""
        brokers = _addresses(bootstrap_servers)
        return any(
            one.kafka.topic == topic and brokers & _addresses(one.kafka.bootstrap_servers)
            for one in self.configs
        )

    def redactor(self) -> Callable[[str], str]:
        """Return a function that removes the secrets of all pipelines from a text."""
        return build_redactor(*self.configs, *(template.sample for template in self.templates))


def plan_job(files: Sequence[str], overrides: Sequence[str] = ()) -> JobPlan:
    """Load the files of a job, and make all checks that need no connection.

    Args:
        files: local paths or URLs.
        overrides: see ``load``; they apply to every file.

    Raises:
        ConfigError: a file is not valid, or the pipelines cannot share a process. Each problem
            begins with the name of its file.
        Retriable: the store of a file does not answer.
    """
    problems, plan = list[Problem](), JobPlan([], [], SharedSettings())
    for file in files:
        try:
            problems += _add_file(plan, file, load_tree(file, overrides))
        except InvalidConfig as error:
            problems += [Problem(file, line) for line in str(error).splitlines()]
    if problems:
        raise ConfigError(problems)
    plan.configs = [plan.shared.share(one) for one in plan.configs]
    return plan


def _add_file(plan: JobPlan, file: str, tree: Tree) -> list[Problem]:
    """Add the pipelines of a file; return the problems that they have with other files."""
    if has_route(tree):
        text = f"needs a process of its own: lakemark run {file}"
        return [Problem(file, f"route: {text}")]
    if not has_several_topics(tree):
        return _add_pipeline(plan, file, _checked(tree))
    if problems := check_template(tree):
        raise ConfigError(problems)
    topics = list(_listed_topics(tree))
    if topics:
        pipelines = [_checked(for_topic(tree, topic)) for topic in topics]
        return [problem for one in pipelines for problem in _add_pipeline(plan, file, one)]
    sample = _checked(for_topic(tree, _SAMPLE_TOPIC))
    if problems := _needs_own_process(file, sample):
        return problems
    plan.templates.append(TopicTemplate(file, sample, tree))
    return plan.shared.add_sections(file, sample)


def _add_pipeline(plan: JobPlan, file: str, config: PipelineConfig) -> list[Problem]:
    if problems := _needs_own_process(file, config):
        return problems
    plan.configs.append(config)
    return plan.shared.add(file, config)


def _needs_own_process(file: str, config: PipelineConfig) -> list[Problem]:
    """Return why a pipeline cannot share a process with others, if it reads other than a topic."""
    if not isinstance(config.source, KafkaSourceConfig):
        text = f"{config.source.kind} needs a process of its own: lakemark run {file}"
        return [Problem(file, f"source.kind: {text}")]
    if config.snapshot is not None:
        text = (
            "needs a process of its own, and one topic; once the snapshot is read, the section may "
            "be removed"
        )
        return [Problem(file, f"snapshot: {text}")]
    return []


def _addresses(bootstrap_servers: str) -> set[str]:
    return {address.strip() for address in bootstrap_servers.split(",")}


def _listed_topics(tree: Tree) -> Iterator[str]:
    source = tree["source"]
    assert isinstance(source, dict)
    yield from map(str, source.get("topics") or ())


def _checked(tree: Tree) -> PipelineConfig:
    """Validate a pipeline, and check what a run checks without a connection."""
    config = validated(tree)
    if problems := config.unresolved():
        raise ConfigError(problems)
    check_locally(config)
    return config
