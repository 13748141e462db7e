"""The site as a reader has it: built from the sources, then opened in a headless Chromium. Full tier only.

The reference itself is tested by test_docs_api.py, what the texts name by test_docs_prose.py.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jsclient.testing import wait_until
from tools.docs import site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
PHONE = (390, 844)
#: words that a reader types -> a page, or one of its sections, where they belong
QUERIES = {
    "throughput": "performance#",
    "progress": "objectstore",
    "optimistic locking": "keyvalue#",
    "install": "start",
    "timeout": "connecting#",
    "stuck": "troubleshooting#",
    "dead letter": "workers#",
    "retry": "workers",
    "exactly once": "patterns#",
    "deduplication": "jetstream#",
    "ack": "jetstream#",
    "nak": "jetstream#",
    "redelivery": "jetstream#",
    "fetch": "jetstream#",
    "replay": "jetstream#",
    "json": "jetstream#",
    "credentials": "connecting",
    "rotate": "connecting#",
    "tls": "connecting",
    "reconnect": "connecting#",
    "queue group": "core#",
    "wildcard": "core",
    "request": "core#",
    "leader election": "coordination",
    "lock": "coordination",
    "order by key": "groups",
    "pandas": "recipes#",
    "duckdb": "recipes#",
    "spark": "spark",
    "checkpoint": "spark-guarantees#",
    "pytest": "testing",
    "mock": "testing",
    "kubernetes": "operations#",
    "systemd": "operations#",
    "prometheus": "operations#",
    "logging": "operations#",
    "sigterm": "operations#",
    "fork": "threads#",
    "asyncio": "threads",
    "schedule": "patterns#",
    "outbox": "patterns#",
    "backup": "backup",
    "large file": "objectstore",
    "slow consumer": "troubleshooting#",
    "no responders": "troubleshooting#",
    "twice": "troubleshooting#",
    "permission": "security#",
    "kafka": "from-kafka",
    "version": "servers",
    "publish_async": "api/jetstream.JetStream#",
    "DigestMismatch": "api/errors#",
}
ENTRIES = 12


@pytest.fixture(scope="module")
def built() -> Path:
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("sphinx is not installed (extra `docs`; `make test-full` installs it)")
    done = subprocess.run([sys.executable, "-m", "tools.docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # warnings and dead links are errors
    return BUILD


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def url(built: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None or importlib.util.find_spec("selenium") is None:
        pytest.skip("no chromium, chromedriver or selenium here (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new",
        "--window-size=1400,1000",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-smooth-scrolling",  # a screenshot waits for the page to stand still, 10 s at most
    ):
        options.add_argument(argument)
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield made
    finally:
        made.quit()


def test_every_page_is_in_the_table_of_contents(built: Path) -> None:
    index = (built / "index.html").read_text(encoding="utf-8")
    pages = {name for name in site.sources().values() if name not in ("index.md", "404.md")}
    assert [name for name in pages if f'href="{name.removesuffix(".md")}.html' not in index] == []


def search(site: Path, queries: list[str]) -> list[list[str]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here (Debian: apt-get install nodejs)")
    command = [node, str(ROOT / "tests" / "search.js"), str(site), *queries]
    return list(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def test_the_right_page_is_among_the_first_three(built: Path) -> None:
    assert len(QUERIES) >= 40
    found = search(built, list(QUERIES))
    wrong = {
        query: hits[:3]
        for (query, page), hits in zip(QUERIES.items(), found, strict=True)
        if not any(hit.startswith(page) for hit in hits[:3])
    }
    assert wrong == {}


def test_keyword_tables_and_the_wire_format_are_left_out(built: Path) -> None:
    queries = ["PullOptionsDict", "StreamConfigDict", "JetStreamListener", "Parser", "ConnectOptionsDict"]
    twins, configs, listener, parser, options = search(built, queries)
    assert [hit for hit in twins + configs + options if "Dict" in hit.partition("#")[2]] == []
    assert [hit for hit in parser if "#jsclient.protocol." in hit] == []
    assert any("JetStreamListener" in hit for hit in listener), "the search finds no class at all"
    index = (built / "genindex.html").read_text(encoding="utf-8")
    assert "JetStreamListener" in index
    assert "StreamConfigDict" not in index


class SideBar(HTMLParser):
    """The classes of the entries of the side bar, and of those that each stands in."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[list[str]] = []
        self._inside: list[str] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        self._open |= tag == "div" and kind == "sidebar-tree"
        if self._open and tag == "li":
            self._inside.append(kind)
            self.entries.append(list(self._inside))

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag == "li":
            self._inside.pop()
        self._open &= tag != "aside"


def shown(entries: list[list[str]]) -> list[str]:
    """The entries that are not folded: the sections, and what is in the current one; in a group, the group alone."""
    unfolded = [places[-1] for places in entries if all("current" in place for place in places[:-1])]
    in_group = any("toctree-l2 current has-children" in " ".join(kind.split()) for kind in unfolded)
    return [kind for kind in unfolded if not (in_group and "toctree-l2" in kind and "current" not in kind)]


def test_the_side_bar_is_short_on_every_page(built: Path) -> None:
    too_long = {}
    for page in built.rglob("*.html"):
        bar = SideBar()
        bar.feed(page.read_text(encoding="utf-8"))
        if bar.entries and len(shown(bar.entries)) > ENTRIES:
            too_long[str(page.relative_to(built))] = len(shown(bar.entries))
    assert too_long == {}
    bar = SideBar()
    bar.feed((built / "index.html").read_text(encoding="utf-8"))
    assert 5 <= len(shown(bar.entries)) < len(bar.entries)


def test_pages_describe_themselves(built: Path) -> None:
    for page in ("index", "jetstream", "404", "api/jetstream.JetStream"):
        text = (built / f"{page}.html").read_text(encoding="utf-8")
        for mark in (
            'name="description" content="',
            'property="og:title" content="',
            'rel="shortcut icon"',
            "logo.svg",
        ):
            assert mark in text, f"{page}: {mark}"


def test_no_line_of_code_is_wider_than_its_place(built: Path) -> None:
    """On the site, where programs of tests/examples and helps of commands are shown, too."""
    wide = []
    for page in (built.parent / "docs-source").rglob("*.md"):
        for block in re.findall(r"^```\w[\w ]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            wide += [f"{page.name}: {line}" for line in block.splitlines() if len(line) > 88]
    assert wide == []


def test_search_finds(browser: Any, url: str) -> None:
    for words, page in (("dead letters", "workers"), ("publish_async", "api/jetstream"), ("fencing", "coordination")):
        browser.get(f"{url}/search.html?q={words.replace(' ', '+')}")
        found = wait_until(lambda: links(browser, "#search-results li a"), 20)

        def shown(page: str = page) -> bool:
            return any(f"/{page}.html" in link for link in links(browser, "#search-results li a"))

        wait_until(shown, 20)
        assert found


def links(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(link => link.href)"
    return list(browser.execute_script(script, selector))


def test_navigation_leads_to_a_page_and_its_links_to_the_reference(browser: Any, url: str) -> None:
    browser.get(f"{url}/index.html")
    assert "jsclient" in browser.title
    browser.find_element("css selector", ".sidebar-tree a[href^='guides.html']").click()
    wait_until(lambda: browser.current_url.endswith("/guides.html"), 20)
    browser.find_element("css selector", ".sidebar-tree a[href^='jetstream.html']").click()
    wait_until(lambda: browser.current_url.endswith("/jetstream.html"), 20)
    assert any("api/errors.html#" in link for link in links(browser, "article a"))


def test_code_can_be_copied(browser: Any, url: str) -> None:
    from selenium.webdriver import ActionChains

    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": url}
    browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
    browser.get(f"{url}/start.html")
    button = wait_until(lambda: browser.find_elements("css selector", ".highlight-python button.copybtn"), 20)[0]
    code = browser.find_element("css selector", ".highlight-python")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", code)
    ActionChains(browser).move_to_element(code).move_to_element(button).click().perform()  # it is seen below the mouse
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, error => done(`${error}`))"
    assert wait_until(lambda: str(browser.execute_async_script(read)).startswith("import jsclient"), 20)


@pytest.mark.parametrize("page", ["index", "start", "performance", "api/jetstream", "from-go"])
def test_a_telephone_shows_the_whole_page(browser: Any, url: str, page: str, tmp_path: Path) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.get(f"{url}/{page}.html")
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
        browser.save_screenshot(str(folder / f"{page.replace('/', '-')}.png"))
        assert wide <= PHONE[0] + 1, f"the page is {wide} points wide"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [1330, 1400, 1600])
def test_a_desktop_shows_the_contents_beside_the_page(browser: Any, url: str, width: int) -> None:
    before = browser.get_window_size()
    browser.set_window_size(width, 1000)
    try:
        browser.get(f"{url}/jetstream.html")
        script = "return document.querySelector('.toc-drawer').getBoundingClientRect().right"
        assert browser.execute_script(script) <= browser.execute_script("return document.documentElement.clientWidth")
    finally:
        browser.set_window_size(before["width"], before["height"])


def test_pictures_are_shown(browser: Any, url: str, tmp_path: Path) -> None:
    browser.get(f"{url}/performance.html")
    script = "return [...document.querySelectorAll('article img')].map(image => image.naturalWidth)"
    wait_until(lambda: (sizes := browser.execute_script(script)) and all(sizes), 20)
    for number, picture in enumerate(browser.find_elements("css selector", "article img")):
        file = Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"plot-{number}.png"
        assert picture.screenshot(str(file))
        assert file.stat().st_size > 10_000, "an empty picture is a few hundred bytes"


def test_there_is_a_dark_mode(browser: Any, url: str) -> None:
    browser.get(f"{url}/index.html")
    seen = set()
    for _ in range(3):  # light, dark, as the system wants it
        seen.add(browser.execute_script("return document.body.dataset.theme"))
        browser.execute_script("document.querySelector('.theme-toggle').click()")
    assert "dark" in seen
