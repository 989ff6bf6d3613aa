"""``lakemark``: the command line.

Exit codes: 0 done, 2 the command line or a configuration is wrong, 1 anything that failed while
running, 130 interrupted by force (a second Ctrl-C). An error is one message on stderr; ``--debug``
adds the trace. A command's imports are its own, so that ``--help`` needs neither Spark nor Arrow.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from streamer.own_logs import own_logs_told
from streamer.stopping import end_at_once
from streamer.table_arguments import add_location, add_sharing, add_steps, add_table, positive
from table.errors import HudiError, InvalidConfig

QUERY_TYPES = ("snapshot", "read_optimized", "incremental", "cdc")

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

_LARGEST_PORT = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what a stream left at work ends with it."""
    parsed = parser().parse_args(arguments)
    code = _execute(parsed)
    loop = getattr(parsed, "loop", None)
    if loop is not None and loop.left_work:
        end_at_once(code)
    return code


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="lakemark",
        description="Streams Kafka topics into tables in the Apache Hudi format.",
        epilog="lakemark COMMAND --help tells more. Begin with: lakemark demo",
    )
    debug = argparse.ArgumentParser(add_help=False)
    for one in (root, debug):
        default = False if one is root else argparse.SUPPRESS
        text = "show the trace of an error"
        one.add_argument("--debug", action="store_true", default=default, help=text)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_demo(commands.add_parser("demo", parents=[debug], help="see it work in a minute"))
    _add_run(commands.add_parser("run", parents=[debug], help="run a pipeline"))
    _add_validate(commands.add_parser("validate", parents=[debug], help="check a pipeline file"))
    _add_query(commands.add_parser("query", parents=[debug], help="read rows of a table"))
    add_table(commands.add_parser("table", help="look into a table, keep it in shape"), debug)
    _add_checkpoint(
        commands.add_parser("checkpoint", parents=[debug], help="where a table's reading goes on")
    )
    _add_broker(commands.add_parser("broker", parents=[debug], help="a Kafka broker for trying"))
    return root


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.description = (
        "Starts a broker, sends orders to a topic, streams them into a table, and shows the table. "
        "The data stays: started again, it goes on where it stopped."
    )
    _add_home(demo)
    demo.add_argument("--records", type=positive, default=20_000, help="how many orders to send")


def _add_run(run: argparse.ArgumentParser) -> None:
    run.description = "Streams a topic into a table until it is stopped, or until it has caught up."
    _add_pipeline(run)
    mode = run.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="end when caught up")
    mode.add_argument("--continuous", action="store_true", help="go on until stopped")
    run.add_argument(
        "--drop-metadata-table",
        action="store_true",
        help="consent to make an existing metadata table anew, without indexes not kept here",
    )
    run.add_argument("--events", type=_local_path, metavar="FILE", help="append each event as JSON")
    run.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: one object for each event, to stderr, in place of the display",
    )


def _add_validate(validate: argparse.ArgumentParser) -> None:
    validate.description = (
        "Checks a pipeline file, imports its merger, and prints it with all defaults, secrets "
        "masked. Asks no broker, store or registry, and lists the checks that were not made."
    )
    _add_pipeline(validate)


def _add_query(query: argparse.ArgumentParser) -> None:
    query.description = "Reads rows of a table, without Spark."
    add_location(query)
    query.add_argument("--type", choices=QUERY_TYPES, default=QUERY_TYPES[0])
    query.add_argument("--as-of", metavar="TIME", help="rows as they were: an instant, or a date")
    query.add_argument("--begin", metavar="TIME", help="of a span, left out itself; or: earliest")
    query.add_argument("--end", metavar="TIME", help="of a span, and in it; left out: now")
    query.add_argument("--columns", type=_comma_list, help="a,b,c; left out: all but Hudi's own")
    query.add_argument("--where", metavar="EXPR", help="such as: amount >= 10 and city in ('Rome')")
    query.add_argument("--key", action="append", help="the row of this record key; may be repeated")
    query.add_argument(
        "--merger",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="your merger, for a table in merge mode CUSTOM; may be repeated",
    )
    query.add_argument("--limit", type=positive, help="at most so many rows (20 on the screen)")
    to = query.add_mutually_exclusive_group()
    to.add_argument("--json", action="store_true", help="one JSON object a line")
    to.add_argument("--out", type=_local_path, metavar="FILE", help="FILE.parquet, .jsonl or .csv")


def _add_checkpoint(checkpoint: argparse.ArgumentParser) -> None:
    checkpoint.description = "Shows where the streamers of a table go on, or changes it."
    checkpoint.add_argument("action", choices=("get", "set", "reset"))
    add_location(checkpoint)
    add_sharing(checkpoint)
    checkpoint.add_argument(
        "checkpoint",
        nargs="?",
        metavar="OFFSETS",
        help="topic,partition:offset,… (set); others stay as they are",
    )
    add_steps(checkpoint, "set or reset it")
    checkpoint.add_argument("--id", default="", help="of a streamer, where a table has several")
    checkpoint.add_argument("--json", action="store_true", help="for programs")


def _add_broker(broker: argparse.ArgumentParser) -> None:
    broker.description = "A Kafka broker of one node on this machine, for trying things out."
    broker.add_argument("action", choices=("start", "stop", "status"))
    _add_home(broker)
    broker.add_argument("--port", type=_port, default=0, help="where clients connect (free one)")


def _add_pipeline(command: argparse.ArgumentParser) -> None:
    command.add_argument("pipeline", metavar="PIPELINE", help="YAML file: a path, or a url")
    command.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="a.b.c=VALUE",
        help="override a setting of the file; may be repeated",
    )


def _add_home(command: argparse.ArgumentParser) -> None:
    text = "folder that keeps the data (./lakemark-demo)"
    command.add_argument("--home", type=_local_path, default=Path("lakemark-demo"), help=text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _LARGEST_PORT:
        message = f"expected a port from 1 to {_LARGEST_PORT}, or 0 for a free one, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _local_path(text: str) -> Path:
    from table.storage import place_of

    try:
        is_local = place_of(text).startswith("file://") and not text.startswith("file:")
    except HudiError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not is_local:
        message = f"expected a path on the local disk, not the URL {text!r}"
        raise argparse.ArgumentTypeError(message)
    return Path(text)


def _comma_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _execute(parsed: argparse.Namespace) -> int:
    try:
        name = getattr(parsed, "module", parsed.command)
        command = importlib.import_module(f"streamer.commands.{name}")
        with own_logs_told(lambda *told: _warn(parsed, *told)):
            return int(command.execute(parsed))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more at exit.
        sys.stderr.close()
        return OK
    except Exception as error:
        return _report(error, parsed)


def _report(error: Exception, parsed: argparse.Namespace) -> int:
    """Tell the user, once and without secrets, and choose the exit code."""
    code = MISUSED if isinstance(error, InvalidConfig) else FAILED
    if getattr(parsed, "is_told", False):
        return code
    redacted = _redaction(parsed)
    if parsed.debug:
        sys.stderr.write(redacted("".join(traceback.format_exception(error))))
    if isinstance(error, HudiError | OSError):
        told = str(error)
    else:
        hint = "" if parsed.debug else " (--debug shows the trace)"
        told = f"unexpected {type(error).__name__}: {error}{hint}"
    print(f"lakemark: {redacted(told)}", file=sys.stderr)
    return code


def _warn(parsed: argparse.Namespace, level: str, _part: str, message: str) -> None:
    """A line for what a part of the project warns of; a run tells of it among its events."""
    print(f"lakemark: {level}: {_redaction(parsed)(message)}", file=sys.stderr)


def _redaction(parsed: argparse.Namespace) -> Callable[[str], str]:
    """Takes out what the command found secret in its pipeline, or was given for a store."""
    from streamer.config.secrets import option_redaction

    given = option_redaction(getattr(parsed, "storage", ()))
    found: Callable[[str], str] = getattr(parsed, "redacted", str)
    return lambda text: given(found(text))
