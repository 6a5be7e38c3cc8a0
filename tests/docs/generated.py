"""Tables that the site inserts at ``<!-- NAME: ARGUMENT -->`` marks of pages: settings, columns, options of commands.

Each comes from the code: the docstrings of ``Config``, the comments of columns, the help of options.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import pyarrow as pa

import groupcoord.config.config
from groupcoord.analysis.decode import schema
from groupcoord.analysis.decode.schema import COLUMNS, Columns
from groupcoord.cli import COMMANDS
from groupcoord.config import SETTINGS
from groupcoord.config.settings import Number

MARK = re.compile(r"^<!-- (\w+): ([\w ]+) -->$", re.MULTILINE)
SPARK_TYPES = {
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
}
SIMPLE_TABLES: Mapping[str, Columns] = {
    "Input": schema.MESSAGES,
    "Records": COLUMNS,
    "commits": schema.COMMITS,
    "current_offsets": schema.CURRENT_OFFSETS,
    "lag": schema.LAG,
    "End offsets": schema.LIVE_END_OFFSETS,
    "Record times": schema.RECORD_TIMES,
    "partition_load": schema.PARTITION_LOAD,
    "corrupt": schema.CORRUPT,
    "read_counts": schema.READ_COUNTS,
}
"""Tables on spark.md with columns of simple types, by heading."""

GROUP_TABLES: Mapping[str, Columns] = {
    name: getattr(schema, name.upper())
    for name in (
        *("groups", "generations", "members", "rebalances", "epochs", "memberships", "moves", "revocations"),
        *("anomalies", "offset_expiry", "stale_groups", "share_partitions"),
    )
} | {"verify": schema.DIFFERENCES}
"""Tables on spark.md with columns of structures, by heading."""


def with_tables(text: str) -> str:
    """Return a page's text with a table in place of each mark."""
    return MARK.sub(lambda mark: GENERATORS[mark[1]](mark[2]), text)


def columns(heading: str) -> str:
    """Return the columns of a table on spark.md, with types if these are simple."""
    if heading in SIMPLE_TABLES:
        rows = [f"| {one.name} | {SPARK_TYPES[one.type]} | {one.comment} |" for one in SIMPLE_TABLES[heading]]
        return "\n".join(["| column | type | |", "|---|---|---|", *rows])
    return "\n".join(
        ["| column | |", "|---|---|", *(f"| {one.name} | {one.comment} |" for one in GROUP_TABLES[heading])]
    )


def settings(_: str) -> str:
    """Return all settings with default, bounds and description, in the order of ``Config``."""
    rows = (f"| `{key}` | {' | '.join(cells)} |" for key, *cells in rows_of_settings())
    return "\n".join(["| key | default | at least | at most | |", "|---|---|---|---|---|", *rows])


def options(command: str) -> str:
    rows = (f"| {names} | {default} | {text} |" for names, default, text in rows_of_options(command))
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])


GENERATORS: Mapping[str, Callable[[str], str]] = {"columns": columns, "settings": settings, "options": options}
"""By the name in a mark, what makes its table."""


def rows_of_options(command: str) -> Iterator[tuple[str, str, str]]:
    """Yield the names of each option, its default and its help."""
    from typer.main import get_command

    from groupcoord.cli import make_app

    assert command in COMMANDS
    group = get_command(make_app([command]))
    for parameter in group.commands[command].params:  # type: ignore[attr-defined]
        if parameter.opts[0].startswith("--") and parameter.opts[0] != "--help":
            shown = parameter.metavar or ("" if parameter.is_flag else parameter.type.name.upper())
            names = ", ".join(f"`{name} {shown}`" if shown else f"`{name}`" for name in parameter.opts)
            default = parameter.default if isinstance(parameter.default, str | int | float) else ""
            text = " ".join((parameter.help or "").split()).replace("|", "\\|")
            yield names.replace("|", "\\|"), "" if isinstance(default, bool) else str(default), text


def described_settings() -> dict[str, str]:
    """Return the description of each setting, by attribute: the docstrings below the fields of ``Config``."""
    (config,) = (
        node
        for node in ast.walk(ast.parse(inspect.getsource(groupcoord.config.config)))
        if isinstance(node, ast.ClassDef) and node.name == "Config"
    )
    found = {}
    for field, text in pairwise(config.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                found[name] = " ".join(docstring.split()).replace("``", "`")
    return found


def rows_of_settings() -> Iterator[list[str]]:
    """Yield key, default, bounds and description of each setting."""
    texts = described_settings()
    texts |= {each.lowest: "Lower bound for groups." for each in SETTINGS.values() if each.lowest is not None}
    texts |= {each.highest: "Upper bound for groups." for each in SETTINGS.values() if each.highest is not None}
    for name, setting in SETTINGS.items():
        kind = setting.kind
        bounds = [str(kind.at_least), str(kind.at_most)] if isinstance(kind, Number) else ["", ""]
        text = "" if setting.is_kafkas else "groupcoord's own. "
        text += texts[name] + (" Can be set per group." if setting.group_type is not None else "")
        yield [setting.key, kind.text(setting.default), *bounds, text]
