"""The options of a catalog: texts by name, as a pipeline file or a command passes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakemark.errors import InvalidConfig


def check_options(
    kind: str,
    options: Mapping[str, str],
    required: Collection[str] = (),
    optional: Collection[str] = (),
) -> None:
    """Check the names of the options.

    Args:
        kind: the kind of the catalog, for the error.
        options: the options.
        required: the names that must be given.
        optional: the names that may be given.

    Raises:
        InvalidConfig: a required option is missing or empty, or an option has an unknown name.
    """
    known = sorted({*required, *optional})
    unknown = sorted(set(options).difference(known))
    if unknown:
        message = f"catalog {kind} has no option {unknown[0]!r}; it accepts {', '.join(known)}"
        raise InvalidConfig(message)
    missing = [name for name in required if not options.get(name)]
    if missing:
        message = f"catalog {kind} needs the option {missing[0]!r}"
        raise InvalidConfig(message)
