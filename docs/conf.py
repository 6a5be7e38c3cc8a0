"""Sphinx configuration of the site: ``sphinx-build -W docs DIR``, with the extra ``docs`` and without network.

The pages are written for GitHub: their links are those that it makes, and their drawings Mermaid's.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import mmdr
from docutils import nodes
from sphinx.application import Sphinx

from groupcoord import __version__

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "site"))
import messages_page
import museum_page

from tests.docs.generated import with_tables
from tests.exam import report_cards
from tests.house.sources import public_names

project = "groupcoord"
copyright = "Apache License 2.0"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"groupcoord {version}"
myst_heading_anchors = 4
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}

ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "site/changes.md",
    "SECURITY.md": "site/security.md",
    "examples": "site/examples.md",
    "groupcoord/conformance/transcripts/README.md": "site/transcripts.md",
    "groupcoord/messages.py": "site/api.md",
    "groupcoord/config/config.py": "reference.md",
    "groupcoord/analysis/decode/schema.py": "spark.md",
    "groupcoord/testing/museum/exhibits": "museum.md",
}
"""Files that pages link to, with the page of the site that shows them."""

README = Path(__file__).parents[1] / "README.md"

PAPER = 'style="background: #fff; padding: 1em"'
"""Style of drawings: a white background, also in dark mode."""

GENERATED = {
    "messages": messages_page.sections,
    "museum": museum_page.sections,
    "report-cards": lambda: report_cards.sections(report_cards.kept()),
}
"""Generators of sections from the source, by page."""

described: set[int] = set()


def complete_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the README, generated sections and tables to their pages; point links to files of the checkout to pages."""
    if name == app.config.root_doc:
        source[0] = README.read_text("utf-8").replace("](docs/", "](") + source[0]
    if name in GENERATED:
        source[0] += "\n" + GENERATED[name]()
    source[0] = with_tables(source[0])
    source[0] = re.sub(r"\]\(([^)#\s]+)", lambda link: f"]({_place(link[1])}", source[0])


def _place(link: str) -> str:
    return ELSEWHERE.get(link.removeprefix("../"), link)


def skip_known(app: Sphinx, what: str, name: str, found: Any, skip: bool, options: Any) -> bool | None:
    """Skip a class that an earlier module has described."""
    if what != "module" or skip or not isinstance(found, type):
        return None
    is_known = id(found) in described
    described.add(id(found))
    return True if is_known else None


def draw(app: Sphinx, document: nodes.document) -> None:
    """Replace Mermaid blocks by pictures."""
    for block in list(document.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            # Names are a little wider in browsers' fonts than in that of the renderer.
            picture = mmdr.render(block.astext()).svg().replace("font-size:14px", "font-size:12px")
            block.replace_self(nodes.raw("", f'<div class="mermaid" {PAPER}>{picture}</div>', format="html"))


def setup(app: Sphinx) -> None:
    """Connect the functions above to Sphinx events; autodoc reads the ``__all__`` of the modules of the API."""
    for name in re.findall(r"automodule:: (.+)", (Path(__file__).parent / "site" / "api.md").read_text("utf-8")):
        module: Any = import_module(name)
        module.__all__ = public_names(module)
    app.connect("source-read", complete_page)
    app.connect("autodoc-skip-member", skip_known)
    app.connect("doctree-read", draw)
