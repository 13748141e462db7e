"""The links of the texts. Those into the repository lead to files and headings that are there.

Links out of it cannot be tried where there is no internet, so the rule is: there are few, each stands here with its
reason, and each is https. A new one is added here, by somebody who has just opened it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted((ROOT / "jsclient").rglob("*.md")),
    *sorted((ROOT / "tools" / "docs" / "pages").glob("*.md")),
]
#: What is linked outside -> why.
OUTSIDE = {
    "https://keepachangelog.com/en/1.1.0/": "the format of the changelog",
    "https://semver.org/": "what its version numbers mean",
    "https://github.com/python/cpython/issues/130279": "how CPython 3.13 compiles loops",
    "https://github.com/synadia-io/orbit.go": "what `jsclient.groups` is compatible with",
    # What differs where Spark is run, in the documentation of each platform.
    "https://spark.apache.org/docs/latest/api/python/tutorial/python_packaging.html": "packed environments, YARN",
    "https://spark.apache.org/docs/latest/running-on-kubernetes.html": "images, secrets and archives",
    "https://docs.databricks.com/pyspark/datasources.html": "the Databricks Runtime that Python sources need",
    "https://docs.databricks.com/libraries.html": "wheels on a compute resource",
    "https://docs.databricks.com/en/compute/serverless/limitations.html": "what functions may not do there",
    "https://docs.aws.amazon.com/ElasticMapReduce/latest/ManagementGuide/emr-plan-bootstrap.html": "bootstrap actions",
    "https://cloud.google.com/dataproc/docs/tutorials/python-configuration": "packages of a Dataproc cluster",
    "https://cloud.google.com/dataproc/docs/guides/dataproc-images": "custom images",
    # Concepts of NATS, in its own documentation.
    "https://docs.nats.io/nats-concepts/subjects": "subjects and wildcards",
    "https://docs.nats.io/nats-concepts/jetstream": "what JetStream is",
    "https://docs.nats.io/nats-concepts/jetstream/streams": "streams and their settings",
    "https://docs.nats.io/nats-concepts/jetstream/consumers": "consumers and their settings",
    "https://docs.nats.io/nats-concepts/jetstream/key-value-store": "buckets",
    "https://docs.nats.io/nats-concepts/jetstream/obj_store": "object stores",
    "https://docs.nats.io/nats-concepts/core-nats/queue": "queue groups",
    "https://docs.nats.io/nats-concepts/core-nats/reqreply": "request and reply",
}
#: Pages that the site makes.
MADE = {"from-go.md", "glossary.md"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
URL = re.compile(r"https?://[^\s)>\"'`\]]+")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.M | re.S)


def prose(path: Path) -> str:
    """Without code: what stands there is an example."""
    return CODE.sub("", path.read_text(encoding="utf-8"))


def docstrings() -> Iterator[tuple[Path, str]]:
    for name in ("jsclient", "protocol"):
        for path in sorted((ROOT / name).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def test_links_to_the_outside_are_known() -> None:
    found = {url for path in TEXTS for url in URL.findall(prose(path))}
    found |= {url for _, text in docstrings() for url in URL.findall(text) if "." in (urlsplit(url).hostname or "")}
    assert found == set(OUTSIDE), "add a new one with its reason once you have opened it; take out what is gone"
    for url in found:
        parts = urlsplit(url)
        assert (parts.scheme, parts.query, parts.username) == ("https", "", None), url
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.hostname or ""), url


def headings(path: Path) -> set[str]:
    """The anchors of a file, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_inside_lead_somewhere(path: Path) -> None:
    wrong = []
    for target in LINK.findall(prose(path)):
        place, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or place in MADE or place.startswith("api/"):
            continue  # of api pages the build looks at the links
        file = (path.parent / place).resolve() if place else path
        if not file.exists() or (
            anchor and anchor not in headings(file) and "<!-- errors -->" not in file.read_text(encoding="utf-8")
        ):
            wrong.append(target)
    assert wrong == []
