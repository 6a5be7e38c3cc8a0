"""Jinja environment of all HTML pages: values are clipped and escaped, times and sizes are formatted by filters."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from statistics import median

from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from groupcoord.analysis.report.html import figures, pictures
from groupcoord.analysis.report.text import (
    TEXT_LENGTH_MAX,
    clipped,
    counted,
    format_clock,
    format_duration,
    format_limit,
    format_number,
    format_share,
    format_size,
    format_span,
    format_time,
    noun,
)

NAME_LENGTH_MAX = 72
_ESCAPES_MAX = 100
_ESCAPED_LENGTH_MAX = len("&quot;")
_LAYOUT_OF_TEMPLATES = re.compile(r"(?<=>)\n\s*(?=<)|(?<=\n)\s+")
"""Line breaks between tags, and indentation."""


def render(template: str, **values: object) -> str:
    """Return a page.

    Args:
        template: path of the template below ``groupcoord``.
    """
    return _LAYOUT_OF_TEMPLATES.sub("", environment().get_template(template).render(values))


@cache
def environment() -> Environment:
    """Return the environment of all templates, which finds them by their path below ``groupcoord``."""
    found = Environment(
        loader=PackageLoader("groupcoord", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
        bytecode_cache=_bytecode_cache(),
    )
    found.filters |= {
        "clock": format_clock,
        "duration": format_duration,
        "limit": format_limit,
        "number": format_number,
        "share": format_share,
        "size": format_size,
        "span": format_span,
        "text": text,
        "time": format_time,
        "cause_class": pictures.cause_class,
        "state_class": pictures.state_class,
    }
    found.globals |= {"counted": counted, "noun": noun, "median": median, "zip": zip}
    found.globals |= {"figures": figures, "pictures": pictures, "style_sheet": style_sheet()}
    return found


def _bytecode_cache() -> FileSystemBytecodeCache | None:
    """Return the cache of compiled templates in the folder of this module's bytecode, if that can be written."""
    folder = os.path.dirname(cache_from_source(__file__))
    is_used = os.access(folder, os.W_OK) and not sys.dont_write_bytecode
    return FileSystemBytecodeCache(folder) if is_used else None


def _finalized(value: object) -> object:
    """Return a value of a template as text of bounded length. A float is a coordinate of a picture."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.1f}"
    shown = str(value)
    return shown if len(shown) <= NAME_LENGTH_MAX and shown.isprintable() else text(shown)


def text(value: str, length_max: int = TEXT_LENGTH_MAX) -> Markup:
    """Return text for a page: clipped, escaped, and clipped further if escapes lengthen it."""
    escaped = escape(clipped(value, length_max))
    if len(escaped) > length_max + _ESCAPES_MAX:
        return escape(clipped(value, length_max // _ESCAPED_LENGTH_MAX))
    return escaped


_TURN_DEGREES = 137.508
"""Golden angle between hues, so that each is far from the previous ones."""


def style_sheet() -> Markup:
    """Return ``style.css`` with a colour for each consumer that is visible on light and dark pages."""
    owners = (
        f".owner-{number}{{--fill:hsl({round(210 + number * _TURN_DEGREES) % 360} "
        f"{62 - number % 3 * 14}% {46 + number % 2 * 12}%)}}\n"
        for number in range(pictures.OWNER_COLOURS)
    )
    return Markup(Path(__file__).with_name("style.css").read_text("utf-8") + "".join(owners))
