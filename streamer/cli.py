"""``lakemark``: the command line.

Exit codes: 0 for success, 2 if the command line or a configuration is wrong, 1 for any other
failure, 130 if Ctrl-C interrupted the command. ``run`` and ``demo`` stop normally at the first
Ctrl-C; only a second one interrupts them. An error is one message on stderr; ``--debug`` adds the
stack trace. The module of a command is imported only when the command is executed, so that
``--help`` imports neither Spark nor Arrow.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

from lakemark.errors import HudiError, InvalidConfig
from lakemark.extras import install_command
from streamer.argument_parser import SuggestingParser
from streamer.dead_letter_arguments import add_dead_letters
from streamer.fast_start import (
    keep_freed_memory,
    prevent_pandas_import,
    resume_garbage_collection,
)
from streamer.stopping import StopRequested, stop_on_first_signal, was_interrupted
from streamer.subscribe_arguments import add_subscribe
from streamer.table_arguments import (
    add_location,
    add_merger,
    add_sharing,
    add_steps,
    add_storage,
    add_table,
    local_path,
    positive,
)

SHELLS = ("bash", "zsh", "fish")
QUERY_TYPES = ("snapshot", "read_optimized", "incremental", "cdc")

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

_PIPELINES = "a pipeline file (YAML): a path or a URL; or a folder of pipeline files"
_LARGEST_PORT = 65_535

#: Python packages that only the optional dependency ``streamer`` installs.
_OF_STREAMER = ("confluent_kafka", "pandas", "prometheus_client", "py4j", "pyspark")

_ARGUMENTS_OF_JOB = (
    "ARGUMENT: the arguments of the HoodieStreamer job, as they follow the jar on the command line "
    "of spark-submit: --target-base-path, --table-type, --source-class and so on."
)

#: Commands that neither need pandas nor start Spark.
_WITHOUT_PANDAS = ("query", "sql", "subscribe", "table", "dead_letters")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    If threads of a run are still at work, exit the process with this code instead of waiting.
    """
    root = parser()
    parsed = root.parse_args(arguments)
    if parsed.command == "run" and not parsed.pipelines and parsed.props is None:
        root.error("run needs a PIPELINE, or --props FILE for a job of HoodieStreamer")
    code = _execute(parsed)
    loop = getattr(parsed, "loop", None)
    if loop is not None and loop.has_unfinished_work:
        from streamer.stopping import exit_now

        exit_now(code)
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    root = SuggestingParser(
        prog="lakemark",
        description="Streams Kafka topics into tables in the Apache Hudi format.",
        epilog="lakemark COMMAND --help lists the options of a command. Begin with: lakemark demo",
    )
    root.add_argument("--version", action=_ShowVersion, help="print the version and exit")
    debug = SuggestingParser(add_help=False)
    for one in (root, debug):
        default = False if one is root else argparse.SUPPRESS
        text = "print the Python stack trace of an error"
        one.add_argument("--debug", action="store_true", default=default, help=text)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, text: str, passed_on: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[debug], help=text, passed_on=passed_on)

    _add_demo(add("demo", "run a broker, a pipeline and queries on sample data"))
    _add_run(add("run", "stream a Kafka topic into a table", passed_on="job"))
    _add_validate(add("validate", "check pipeline files"))
    text = "print the pipeline file for a job of HoodieStreamer"
    _add_migrate(add("migrate", text, passed_on="job"))
    text = "write a second table next to a running job, and compare both"
    _add_shadow(add("shadow", text, passed_on="job"))
    _add_compare(add("compare", "compare the rows of two tables at the same offsets"))
    _add_doctor(add("doctor", "check everything that a pipeline needs"))
    _add_preview(add("preview", "show which rows some records would become"))
    _add_query(add("query", "print or export rows of a table"))
    _add_sql(add("sql", "run an SQL query on one or more tables"))
    text = "deliver the changes of a table to a Kafka topic or a file"
    add_subscribe(add("subscribe", text))
    text = "show or check a table, or run a table service on it"
    add_table(commands.add_parser("table", help=text), debug)
    text = "show or replay the records that could not become rows"
    letters = commands.add_parser("dead-letters", help=text)
    add_dead_letters(letters, debug, _add_pipeline, _add_overrides)
    _add_checkpoint(add("checkpoint", "show or change the Kafka offsets that a table has reached"))
    text = "start or stop a Kafka broker for trials, or create a topic in it"
    _add_broker(commands.add_parser("broker", help=text), debug)
    _add_completion(add("completion", "print the script that completes commands in a shell"))
    return root


class _ShowVersion(argparse.Action):
    """Prints the version, which is looked up only here, because that takes longer than parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"lakemark {version('lakemark')}")
        parser.exit()


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.description = (
        "Starts a broker, sends orders to a topic, streams them into a table, and shows the table. "
        "The data is kept, so the next demo continues where this one stopped."
    )
    _add_home(demo)
    demo.add_argument("--records", type=positive, default=20_000, help="how many orders to send")


def _add_run(run: argparse.ArgumentParser) -> None:
    run.description = (
        "Streams a Kafka topic into a table, as described in a pipeline file. Resumes from the "
        "offsets in the table. Runs until you stop it (Ctrl-C, SIGTERM) or, with run.mode: once or "
        "--once, until it has read the topic. Several files, or a folder of files, run in one "
        "process; the exit code is 1 if one of their pipelines failed. With --props, a job of "
        "HoodieStreamer runs without a pipeline file."
    )
    run.usage = "lakemark run [OPTIONS] PIPELINE … | [OPTIONS] --props FILE -- ARGUMENT …"
    run.add_argument(
        "pipelines",
        metavar="PIPELINE",
        nargs="*",
        help=_PIPELINES,
    )
    _add_overrides(run)
    text = (
        "run the pipeline that lakemark migrate would print for the job of HoodieStreamer with "
        "this property file (a path or a URL); refused if it would write other rows than the job"
    )
    run.add_argument("--props", metavar="FILE", help=text)
    _add_source_schema(run)
    run.epilog = _ARGUMENTS_OF_JOB
    run.add_argument(
        "--parallel-batches",
        type=positive,
        metavar="N",
        help="of several pipelines: how many batches are read and written at the same time "
        "(default: half of the cores, but at least 2)",
    )
    mode = run.add_mutually_exclusive_group()
    mode.add_argument(
        "--once",
        action="store_true",
        help="stop when all records that the topic holds at the start have been read",
    )
    mode.add_argument("--continuous", action="store_true", help="run until stopped")
    run.add_argument(
        "--drop-metadata-table",
        action="store_true",
        help="rebuild an existing metadata table without its indexes, such as those that lakemark "
        "does not maintain",
    )
    _add_event_output(run)


def _add_event_output(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--events",
        type=local_path,
        metavar="FILE",
        help="append each event to FILE as a JSON object",
    )
    run.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="what is printed to stderr: a display for people (text), or one JSON object per event "
        "(json)",
    )


def _add_validate(validate: argparse.ArgumentParser) -> None:
    validate.description = (
        "Checks pipeline files, imports their mergers, and prints all settings, also defaults; "
        "secrets are masked. Connects to no broker, object store or schema registry. Lists the "
        "checks that it does not make; lakemark doctor makes them. Several files are also checked "
        "together, as lakemark run would run them in one process."
    )
    validate.add_argument("pipelines", metavar="PIPELINE", nargs="+", help=_PIPELINES)
    _add_overrides(validate)


def _add_migrate(migrate: argparse.ArgumentParser) -> None:
    migrate.usage = "lakemark migrate [OPTIONS] FILE -- ARGUMENT …"
    migrate.description = (
        "Prints a pipeline file that does the same as a job of HoodieStreamer (or "
        "HoodieDeltaStreamer). Lists on stderr what has no counterpart; the exit code is 1 if the "
        "rows depend on it. Secrets become references to environment variables. Changes nothing."
    )
    text = "the property file of the job (--props): a path or a URL; included files are read, too"
    migrate.add_argument("properties", metavar="FILE", help=text)
    _add_source_schema(migrate)
    text = (
        "check the tables as a run does before it writes, and print the offsets at which the "
        "pipeline continues"
    )
    migrate.add_argument("--check-table", action="store_true", help=text)
    migrate.epilog = _ARGUMENTS_OF_JOB


def _add_source_schema(command: argparse.ArgumentParser) -> None:
    text = (
        "an Avro schema file of the records, for a job whose schema provider reads no file: a path "
        "or a URL"
    )
    command.add_argument("--source-schema", metavar="FILE", help=text)


def _add_shadow(shadow: argparse.ArgumentParser) -> None:
    shadow.usage = "lakemark shadow [OPTIONS] FILE --to TABLE [-- ARGUMENT …]"
    shadow.description = (
        "Proves that a pipeline writes the same rows as the job that it should replace, while the "
        "job runs. Reads the topic into a second table, exactly up to the offsets of the job's "
        "newest commit, and compares both tables at these offsets; the exit code is 0 only if they "
        "are equal. Each call continues the second table. The job's table is only read."
    )
    text = (
        "the property file of a HoodieStreamer job, or a pipeline file (.yaml or .yml): a path or "
        "a URL. Its table is the one that the job writes"
    )
    shadow.add_argument("file", metavar="FILE", help=text)
    text = "the second table: a path or a URL; the first call creates it"
    shadow.add_argument("--to", metavar="TABLE", required=True, help=text)
    text = (
        "let the first call read the topic from its beginning (or from source.starting_offsets, if "
        "these are not latest); by default, it copies the rows of the job's table, and continues "
        "at the offsets of this copy"
    )
    shadow.add_argument("--from-topic", action="store_true", help=text)
    _add_overrides(shadow)
    _add_source_schema(shadow)
    _add_comparison(shadow)
    _add_event_output(shadow)
    shadow.epilog = _ARGUMENTS_OF_JOB


def _add_compare(compare: argparse.ArgumentParser) -> None:
    compare.description = (
        "Compares the rows of two tables as of the newest commits at which both contain the "
        "records of a source up to the same position, such as the same Kafka offsets. Prints how "
        "many rows are equal, missing or different. The exit code is 0 only if all rows, columns "
        "and types are equal. Both tables are only read. Needs no Spark."
    )
    compare.add_argument("old", metavar="OLD_TABLE", help="a local path or a URL")
    compare.add_argument("new", metavar="NEW_TABLE", help="a local path or a URL")
    for side in ("old", "new"):
        text = f"compare the {side} table as of this instant or time, whatever its position"
        compare.add_argument(f"--{side}-as-of", metavar="TIME", help=text)
    _add_comparison(compare)
    add_storage(compare)
    add_merger(compare)


def _add_comparison(command: argparse.ArgumentParser) -> None:
    text = "the columns by which rows are matched, such as a,b (default: those of the record key)"
    command.add_argument("--key", type=_comma_list, metavar="NAMES", help=text)
    text = "columns that are not compared, such as a column with the time of the write"
    command.add_argument("--ignore", type=_comma_list, metavar="NAMES", help=text)
    text = "how many examples of each kind of difference are printed (default: 5)"
    command.add_argument("--examples", type=positive, default=5, metavar="N", help=text)
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.description = (
        "Checks everything that a run of a pipeline needs: Java and Spark, the broker, the topic, "
        "the schema registry, the rights on storage, the lock, the tables, the memory. Prints one "
        "line for each check, with the remedy if it fails. Changes nothing, and does not start "
        "Spark."
    )
    _add_pipeline(doctor)
    doctor.add_argument("--json", action="store_true", help="print one JSON object per check")


def _add_preview(preview: argparse.ArgumentParser) -> None:
    preview.description = (
        "Reads the newest records of the topic with Spark, or the next records of files or of a "
        "table, decodes and transforms them as a run does, and shows the columns, some rows, the "
        "rejected records and the commit that a run would make. Writes nothing: no table, no "
        "dead letters, no offsets."
    )
    _add_pipeline(preview)
    preview.add_argument(
        "--records",
        type=positive,
        default=10_000,
        metavar="N",
        help="how many records to read at most (default: 10000)",
    )
    preview.add_argument(
        "--rows", type=positive, default=10, metavar="N", help="how many rows to show (default: 10)"
    )


def _add_query(query: argparse.ArgumentParser) -> None:
    query.description = "Prints rows of a table, or writes them to a file. Needs no Spark."
    add_location(query)
    text = "the kind of query (default: snapshot)"
    query.add_argument("--type", choices=QUERY_TYPES, default=QUERY_TYPES[0], help=text)
    text = (
        "time travel: the rows as of an instant, a date or a time, such as 2026-05-01, "
        "2026-05-01T12:30 or 2026-05-01T12:30+02:00"
    )
    query.add_argument("--as-of", metavar="TIME", help=text)
    text = "incremental and cdc: only commits after this instant or time (earliest: all commits)"
    query.add_argument("--begin", metavar="TIME", help=text)
    text = "incremental and cdc: only commits up to this instant or time, inclusive (default: all)"
    query.add_argument("--end", metavar="TIME", help=text)
    text = "columns and fields of structs, such as a,b.c (default: all columns except Hudi's)"
    query.add_argument("--columns", type=_comma_list, metavar="NAMES", help=text)
    text = "only rows that match, such as: amount >= 10 and city like 'R%%'"
    query.add_argument("--where", metavar="CONDITION", help=text)
    text = "only the row with this record key; may be repeated"
    query.add_argument("--key", action="append", help=text)
    add_merger(query)
    text = (
        "print which file groups the query reads, and why it skips the others; no rows are printed"
    )
    query.add_argument("--explain", action="store_true", help=text)
    _add_output(query)


def _add_sql(sql: argparse.ArgumentParser) -> None:
    sql.description = (
        "Runs an SQL query on tables with DuckDB, and prints its rows or writes them to a file. A "
        "path or URL in quotes is a table: select region, count(*) from 'lake/orders' group by "
        "region. The functions snapshot, read_optimized, incremental and cdc are the other kinds "
        "of queries. Needs the extra sql (" + install_command("sql") + "), but no Spark."
    )
    text = "the query, or - to read it from standard input; quote it in a shell"
    sql.add_argument("query", metavar="QUERY", help=text)
    add_storage(sql)
    add_merger(sql)
    text = (
        "print which columns and file groups of each table the query reads, and why it skips "
        "others; no rows are printed"
    )
    sql.add_argument("--explain", action="store_true", help=text)
    _add_output(sql)


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="at most N rows (default: 20 on the screen, all in a file)",
    )
    to = command.add_mutually_exclusive_group()
    to.add_argument("--json", action="store_true", help="print one JSON object per line")
    to.add_argument(
        "--out",
        type=local_path,
        metavar="FILE",
        help="write to FILE.parquet, FILE.jsonl or FILE.csv",
    )


def _add_checkpoint(checkpoint: argparse.ArgumentParser) -> None:
    checkpoint.description = (
        "Shows or changes the Kafka offsets from which the next run of a pipeline resumes. The "
        "actions set and reset only print their plan, unless you add --run."
    )
    text = (
        "show the checkpoint (get), set its offsets (set), or delete it (reset), so that the next "
        "run starts at source.starting_offsets"
    )
    checkpoint.add_argument("action", choices=("get", "set", "reset"), help=text)
    add_location(checkpoint)
    add_sharing(checkpoint)
    checkpoint.add_argument(
        "checkpoint",
        nargs="?",
        metavar="OFFSETS",
        help="for set: topic,partition:offset,…; other partitions keep their offsets",
    )
    add_steps(checkpoint, "set or reset the checkpoint")
    text = "the pipeline's source.checkpoint_id, if several pipelines write the table"
    checkpoint.add_argument("--id", default="", help=text)
    checkpoint.add_argument("--json", action="store_true", help="print JSON for programs")


def _add_broker(broker: argparse.ArgumentParser, debug: argparse.ArgumentParser) -> None:
    broker.description = (
        "Runs a Kafka broker with one node on this machine, in the background. It does not create "
        "topics automatically."
    )
    commands = broker.add_subparsers(dest="action", metavar="SUBCOMMAND", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[debug], help=text)
        command.description = f"{text[0].upper()}{text[1:]}."
        _add_home(command)
        return command

    start = add("start", "start the broker, unless it runs")
    text = "port for clients (default: a free one)"
    start.add_argument("--port", type=_port, default=0, help=text)
    add("stop", "stop the broker; it keeps its topics")
    add("status", "show whether the broker runs (exit code 1 if it does not)")
    create = add("create-topic", "create a topic in the running broker, unless it exists")
    create.add_argument("topic", metavar="TOPIC", help="the name of the topic")
    text = "number of partitions of the topic (default: 1)"
    create.add_argument("--partitions", type=positive, default=1, metavar="N", help=text)


def _add_completion(completion: argparse.ArgumentParser) -> None:
    completion.description = (
        'Prints a script for your shell. In ~/.bashrc: eval "$(lakemark completion bash)". In '
        '~/.zshrc, after compinit: eval "$(lakemark completion zsh)". In fish: lakemark completion '
        "fish | source."
    )
    completion.add_argument("shell", choices=SHELLS, help="your shell")


def _add_pipeline(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "pipeline", metavar="PIPELINE", help="the pipeline file (YAML): a path or a URL"
    )
    _add_overrides(command)


def _add_overrides(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="a.b.c=VALUE",
        help="override a setting of the file; may be repeated",
    )


def _add_home(command: argparse.ArgumentParser) -> None:
    text = "folder for the data (default: ./lakemark-demo)"
    command.add_argument("--home", type=local_path, default=Path("lakemark-demo"), help=text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _LARGEST_PORT:
        message = f"expected a port from 1 to {_LARGEST_PORT}, or 0 for a free one, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _comma_list(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        message = f"expected names such as a,b,c, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return names


def _execute(parsed: argparse.Namespace) -> int:
    try:
        with stop_on_first_signal() if parsed.command == "run" else nullcontext():
            return _run_command(parsed)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed our output. Without this, Python would print an error at exit.
        sys.stderr.close()
        return OK
    except StopRequested:
        print(f"lakemark: {parsed.command} was stopped", file=sys.stderr)
        return OK
    except Exception as error:
        # The JVM ends at Ctrl-C, too, so that the end of its session may fail.
        return INTERRUPTED if was_interrupted(error) else _report(error, parsed)


def _run_command(parsed: argparse.Namespace) -> int:
    keep_freed_memory()
    command = _import_command(getattr(parsed, "module", parsed.command), parsed)
    resume_garbage_collection()
    from streamer.capture_logs import capture_logs, log_clashes

    with capture_logs(lambda *warning: _warn(parsed, *warning)):
        if parsed.command != "run":  # run emits the warnings as events
            log_clashes()
        return int(command.execute(parsed))


def _import_command(name: str, parsed: argparse.Namespace) -> ModuleType:
    if name in _WITHOUT_PANDAS and not getattr(parsed, "merger", None):
        prevent_pandas_import()
    return importlib.import_module(f"streamer.commands.{name}")


def _report(error: Exception, parsed: argparse.Namespace) -> int:
    """Print the error without secrets, unless it was already reported; return the exit code."""
    code = MISUSED if isinstance(error, InvalidConfig) else FAILED
    if getattr(parsed, "is_reported", False):
        return code
    redacted = _redaction(parsed)
    if parsed.debug:
        import traceback

        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    if isinstance(error, HudiError | OSError):
        text = str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name in _OF_STREAMER:
        text = (
            f"lakemark {parsed.command} needs the streamer ({error.name} is not installed); "
            f"install it: {install_command('streamer')}"
        )
    else:
        hint = "" if parsed.debug else " (--debug shows the stack trace)"
        text = f"unexpected {type(error).__name__}: {error}{hint}"
    print(f"lakemark: {redacted(text)}", file=sys.stderr)
    return code


def _warn(parsed: argparse.Namespace, level: str, _module: str, message: str) -> None:
    """Print a logged warning; ``lakemark run`` emits it as an event instead."""
    print(f"lakemark: {level}: {_redaction(parsed)(message)}", file=sys.stderr)


def _redaction(parsed: argparse.Namespace) -> Callable[[str], str]:
    """Return a function that removes the pipeline's and ``--storage``'s secrets from a text."""
    from streamer.config.masking import build_option_redactor

    given = build_option_redactor(getattr(parsed, "storage", ()))
    found: Callable[[str], str] = getattr(parsed, "redacted", str)
    return lambda text: given(found(text))
