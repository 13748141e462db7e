"""tools/dist.py: the description for a package index, and one version in three places."""

from __future__ import annotations

from tools import dist


def test_links_work_outside_of_the_repository() -> None:
    text = "[a](jsclient/x.md) ![p](tools/p.svg) [b](https://example.org/) [c](#d) [![badge](b.svg)](x.md)"
    assert dist.for_an_index(text, "") == "a  [b](https://example.org/) [c](#d) "
    assert dist.for_an_index(text, "https://h/r/") == (
        "[a](https://h/r/jsclient/x.md) ![p](https://h/r/tools/p.svg) [b](https://example.org/) [c](#d) "
        "[![badge](https://h/r/b.svg)](https://h/r/x.md)"
    )


def test_the_version_is_the_same_everywhere() -> None:
    assert dist.version() == "0.1.0"
