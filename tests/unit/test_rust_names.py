"""Every public name of the jetstream and service modules of async-nats has a row, or the same name here."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Any

from tests.names_rig import PAGES, everything, keywords, members, named, rows, spelled

from jsclient import errors
from tools import rust_names

PAGE = (PAGES / "async-nats-names.md").read_text(encoding="utf-8")
NAMES = [
    line
    for line in (Path(__file__).parent / "async_nats_names.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
TYPES = {theirs: ours.strip("`") for names, ours in rows(PAGE, "Types") for theirs in names}
OTHERS = [row for row in rows(PAGE, "") if row not in rows(PAGE, "Types")]
PATTERNS = [pattern for names, _ in OTHERS for pattern in names]


def same_name_here(name: str) -> bool:
    """True for a type of the table, and for what has the same name in our class of it."""
    kind, _, member = name.rpartition(".")
    if name in TYPES:
        return True
    if kind not in TYPES:
        return False
    ours = members(attrgetter(TYPES[kind])(everything))
    return bool({member, spelled(member), spelled(member).upper()} & ours)


def test_every_name_of_async_nats_is_here_or_has_a_row() -> None:
    assert len(NAMES) > 900
    stated = [name for name in NAMES if any(fnmatchcase(name, pattern) for pattern in PATTERNS)]
    assert [name for name in NAMES if name not in stated and not same_name_here(name)] == []


def test_no_row_is_about_nothing() -> None:
    assert [pattern for pattern in PATTERNS if not any(fnmatchcase(name, pattern) for name in NAMES)] == []
    assert [kind for kind in TYPES if not any(name == kind or name.startswith(f"{kind}.") for name in NAMES)] == []


def home_of(first: str) -> Any:
    return getattr(everything, first, None) or named(first)


def test_what_the_rows_name_here_exists() -> None:
    checked = 0
    for _, ours in OTHERS:
        for first, second in re.findall(r"`([A-Za-z]+)\.([A-Za-z_]+)`", ours):
            if first != "jsclient":
                assert second in members(home_of(first)), (first, second)
                checked += 1
    assert checked > 150


def test_keyword_arguments_of_the_rows_exist() -> None:
    checked = 0
    for _, ours in OTHERS:
        for first, second, options in re.findall(r"`([A-Za-z]+)\.([A-Za-z_]+)` \((`[^)]*)\)", ours):
            known = keywords(getattr(home_of(first), second))
            for option in re.findall(r"`(\w+)=`", options):
                assert option in known, (first, second, option)
                checked += 1
    assert checked > 30


def test_the_errors_that_the_rows_name_exist() -> None:
    assert [
        name
        for name in re.findall(r"`errors\.(\w+)`", "".join(ours for _, ours in OTHERS))
        if not hasattr(errors, name)
    ] == []


RUST = """
pub(crate) struct Hidden {
    pub a: u64,
}
#[derive(Debug)]
pub struct Config {
    /// pub wrong: u64,
    pub name: String,
    hidden: String,
}
impl<T> Config<T> {
    pub async fn run<S: Into<String>>(&self) {
        pub_fn();
    }
    pub(crate) fn inner() {}
    fn own() {}
}
impl Default for Config {
    fn default() -> Self {}
}
pub enum Policy {
    /// All
    All,
    After { seconds: u64 },
}
pub enum RunErrorKind {
    Late,
}
pub trait Acts {
    fn act(&self);
}
pub type Short = Config;
mod tests {
    pub fn not_public() {}
}
"""


def test_names_are_read_from_sources(tmp_path: Path) -> None:
    file = tmp_path / "jetstream" / "kv" / "mod.rs"
    file.parent.mkdir(parents=True)
    file.write_text(RUST)
    assert [name.removeprefix("kv.") for name in rust_names.exported(tmp_path)] == [
        *("Acts", "Acts.act", "Config", "Config.name", "Config.run"),
        *("Policy", "Policy.After", "Policy.All", "RunErrorKind", "Short"),
    ]
