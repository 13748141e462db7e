"""Sphinx's configuration: Markdown by MyST; the theme furo has search, light and dark, and fits a telephone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docutils import nodes

import jsclient

project = "jsclient"
author = "The jsclient maintainers"
project_copyright = "the jsclient maintainers, Apache License 2.0"
release = version = jsclient.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"jsclient {release}"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_logo = html_favicon = "static/brand/logo.svg"
html_baseurl = os.environ.get("DOCS_URL", "")  # where the site is published: links for previews need it
templates_path = ["templates"]
html_copy_source = False
html_show_sourcelink = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "
exclude_patterns = ["files/**"]
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 90
add_module_names = False
suppress_warnings = ["myst.header", "ref.python"]  # headings begin below their class; `Msg` is in two packages


def names(env: Any) -> dict[str, tuple[str, str]]:
    """What may stand in backticks in a text -> (page, anchor): `JetStream.publish`, `connect`, `jsclient.shared`."""
    found: dict[str, set[tuple[str, str]]] = {}
    for full, entry in env.get_domain("py").objects.items():
        parts = full.split(".")
        for start in range(len(parts)):
            name = ".".join(parts[start:])
            if "." in name or name[:1].isupper():
                found.setdefault(name, set()).add((entry.docname, entry.node_id))
    return {name: next(iter(places)) for name, places in found.items() if len(places) == 1}


def link_names(app: Any, doctree: nodes.document, docname: str) -> None:
    """Names in backticks become links to the reference."""
    known = names(app.env)
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, (nodes.reference, nodes.title)) or docname.startswith("api/"):
            continue
        place = known.get(literal.astext().split("(")[0])
        if place is None:
            continue
        uri = app.builder.get_relative_uri(docname, place[0]) + f"#{place[1]}"
        reference = nodes.reference("", "", internal=True, refuri=uri)
        literal.replace_self(reference)
        reference += literal


def summarize(app: Any, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """The first paragraph describes a page to search engines and in previews of links."""
    first = next(iter(doctree.findall(nodes.paragraph)), None) if doctree is not None else None
    text = " ".join(first.astext().split()) if first is not None else "A synchronous NATS JetStream client for Python."
    context["summary"] = text if len(text) < 200 else text[:199].rsplit(" ", 1)[0] + " ..."
    context["html_base"] = html_baseurl and html_baseurl.rstrip("/") + "/"


def hide_internals(app: Any, env: Any) -> None:
    """The search leaves out the wire format, which only other clients of it look up."""
    objects = env.get_domain("py").objects
    for name, entry in list(objects.items()):
        if name.startswith("jsclient.protocol."):
            objects[name] = entry._replace(aliased=True)


def setup(app: Any) -> None:
    app.connect("doctree-resolved", link_names)
    app.connect("html-page-context", summarize)
    app.connect("env-updated", hide_internals)
