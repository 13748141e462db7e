"""The bench's arithmetic, and that the README still has the places which `python -m tools.bench --readme` replaces."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import tools.bench.__main__ as bench
from tools.bench import client_natsc, client_natsgo, compiled, networks, readme, report, revision
from tools.bench.cases import ALL, MAIN, Case, chosen
from tools.private_apt import AptError

CASE = Case(name="c", work="fetch", count=1000, cpu=2.0, wall=1.5)


def rows(ours: list[float], base: list[float]) -> list[dict[str, object]]:
    """CPU seconds per round; wall is twice that."""
    return [
        {
            "case": "c",
            "client": client,
            "round": number,
            "cpu": cpu,
            "wall": 2 * cpu,
            "p50": cpu,
            "rss": 30.0,
            "load": 0.5,
            "server": "9.9.9",
        }
        for client, values in (("jsclient", ours), ("nats-py", base))
        for number, cpu in enumerate(values)
    ]


def test_ratios_are_medians_of_the_ratios_of_each_round() -> None:
    found = report.summarize(CASE, rows([0.1, 0.2, 0.1], [0.3, 0.2, 0.5]))
    assert found[0].cpu_ratio == pytest.approx(3.0)
    assert found[0].cpu == pytest.approx(100.0)
    assert found[1].cpu_ratio is None
    assert report.verdict(CASE, found, loaded=False) == []
    slow = report.summarize(CASE, rows([0.1, 0.1], [0.11, 0.11]))
    assert report.verdict(CASE, slow, loaded=True) == ["c: CPU 1.10x of nats-py, must be 2x"]
    assert len(report.verdict(CASE, slow, loaded=False)) == 2


def test_a_run_that_failed_fails_the_case() -> None:
    broken = [*rows([0.1], [0.3]), {"case": "c", "client": "jsclient", "round": 1, "error": "dropped", "load": 0.5}]
    assert report.verdict(CASE, report.summarize(CASE, broken), loaded=False) == ["c: failed: dropped"]


def test_a_failed_run_ends_the_command_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows"
    good = [{**row, "case": "decode", "figures": {"of msgspec's speed": 0.1}} for row in rows([0.1], [])]
    bad = {"case": "decode", "client": "jsclient", "round": 1, "error": "not done in 120 s", "load": 0.5}
    monkeypatch.setattr("sys.argv", ["bench", "--cases", "decode", "--rows", str(path)])
    for found, status, text in ((good, 0, "must be 0.83"), ([*good, bad], 1, "jsclient failed in 1 rounds: not done")):
        path.unlink(missing_ok=True)
        report.write_rows(path, found)
        assert bench.main() == status
        assert text in capsys.readouterr().out
    network = Case(name="net-64k-c", work="fetch", count=1000, network="64k")
    peer = {"client": "nats-py", "round": 0, "error": "not done"}
    assert report.failures(network, [peer]) == []
    assert report.failures(CASE, [peer, {**peer, "client": "natsrpy"}]) == ["c: nats-py failed in 1 rounds: not done"]
    assert report.failures(CASE, [{**peer, "client": "before"}]) == ["c: before failed in 1 rounds: not done"]


def test_an_earlier_revision_is_compared_round_by_round() -> None:
    before = [{**row, "client": "before"} for row in rows([0.2, 0.3, 0.1], [])]
    found = report.summarize(CASE, [*rows([0.1, 0.1, 0.1], [0.3, 0.3, 0.3]), *before])
    assert [result.client for result in found] == ["jsclient", "nats-py", "before"]
    assert found[0].before_cpu == found[0].before_wall == pytest.approx(2.0)
    assert found[2].before_cpu is None
    assert "to before: CPU  2.00x  wall  2.00x" in report.table(CASE, found)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_an_earlier_revision_lies_below_tools_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    monkeypatch.setattr(revision, "ROOT", tmp_path)
    for name in ("jsclient", "protocol"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("old = True\n")
    git("init")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-m", "old")
    (tmp_path / "jsclient" / "__init__.py").write_text("old = False\n")
    with revision.unpacked("HEAD") as folder:
        assert Path(folder).parent == tmp_path / ".tools"
        assert (Path(folder) / "jsclient" / "__init__.py").read_text() == "old = True\n"
    assert list((tmp_path / ".tools").iterdir()) == []
    with pytest.raises(SystemExit, match="git has no revision '--all'"), revision.unpacked("--all"):
        pass


def test_a_bad_network_is_judged_by_its_time() -> None:
    case = Case(name="net-64k-c", work="fetch", count=1000, network="64k", wall=0.95)
    equal = report.summarize(case, rows([0.1, 0.1], [0.1, 0.1]))
    assert report.verdict(case, equal, loaded=False) == []
    slow = report.summarize(case, rows([0.2, 0.2], [0.1, 0.1]))
    assert report.verdict(case, slow, loaded=False) == ["net-64k-c: wall 0.50x of nats-py, must be 0.95x"]
    alone = report.summarize(case, [*rows([0.2], []), {"client": "nats-py", "round": 0, "error": "not done"}])
    assert report.verdict(case, alone, loaded=False) == []
    assert networks.table({case.name: slow}, [case]).endswith("| c | **0.50x** (0.4 s; 0.2 s) |")
    assert networks.table({case.name: alone}, [case]).endswith("| c | 0.4 s; nats-py: not done |")


def test_bars_that_are_too_long_are_cut() -> None:
    found = report.summarize(CASE, rows([0.1], [0.3]))
    slow = report.summarize(CASE, [{**row, "client": "x"} for row in rows([90.0], [])])
    lines = report.chart(CASE, [*found, *slow]).splitlines()
    assert [line.count("#") for line in lines] == [13, 40, 39]
    assert "#> 90000.00" in lines[2]


def test_cases_are_chosen_by_the_beginning_of_their_names() -> None:
    assert [case.name for case in chosen("kv-put, fetch-1000", False)] == ["kv-put", "fetch-1000"]
    assert {case.name for case in chosen("fetch", False)} == {name for name in ALL if name.startswith("fetch")}
    assert chosen("all", False) == list(ALL.values())
    assert chosen(None, False) == MAIN
    assert all(case.check for case in chosen(None, True))
    with pytest.raises(SystemExit, match="no case begins with 'nothing'"):
        chosen("nothing", False)
    assert all(not case.versus or case.versus in ALL for case in ALL.values())


@pytest.mark.parametrize("name", ["README", "PERFORMANCE"])
def test_the_pages_have_what_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: it draws the picture")
    assert list(readme.TITLES) == [case.name for case in MAIN]
    for page in ("README", "PERFORMANCE"):
        copied = tmp_path / f"{page}.md"
        copied.write_text(getattr(readme, page).read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setattr(readme, page, copied)
    copy = tmp_path / f"{name}.md"
    monkeypatch.setattr(readme, "PICTURE", tmp_path / "ratios.svg")
    results = {name: report.summarize(ALL[name], rows([0.1], [0.3])) for name in readme.TITLES}
    readme.refresh(results, rows([0.1] * 5, [3.0]))
    text = copy.read_text(encoding="utf-8")
    assert "nats-server 9.9.9, " in text
    assert "load average 0 to 0, medians of 5 interleaved rounds.\n" in text
    assert "| messages(), ack each | 300,000/s, 1.67 µs | 100,000/s, 5.00 µs | 3.0x CPU, 3.0x time | - | - |\n" in text
    assert text.count("| 128 bytes |") == 1
    readme.refresh(results, rows([0.1] * 5, [3.0]))
    assert copy.read_text(encoding="utf-8") == text
    with pytest.raises(SystemExit, match=r"not measured \['kv-get'\]"):
        readme.refresh({name: found for name, found in results.items() if name != "kv-get"}, rows([0.1], []))


def test_wall_says_nothing_on_a_loaded_machine() -> None:
    assert not report.loaded([{"load": 0.1}, {"load": 0.2}, {"load": 10_000.0}])
    assert report.loaded([{"load": 0.1}, {"load": 10_000.0}, {"load": 10_000.0}])


def test_rows_are_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "bench.jsonl"
    report.write_rows(path, rows([0.5, 0.2], [0.3]))
    report.write_rows(path, rows([0.1], [0.3]))
    assert [row["cpu"] for row in report.read_rows(path)["c"]] == [0.1, 0.2, 0.3]


def test_nats_c_says_why_it_does_not_take_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_natsc, "FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(compiled.Unavailable, match="no C compiler"):
        client_natsc.program()


def test_nats_go_says_why_it_does_not_take_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_natsgo, "FOLDER", tmp_path)

    def nothing_there(*_: object) -> Path:
        raise AptError("no mirror")

    monkeypatch.setattr(client_natsgo, "fetch_packages", nothing_there)
    monkeypatch.setattr(compiled, "suite", lambda: "bookworm")
    with pytest.raises(compiled.Unavailable, match=r"Go and nats\.go cannot be fetched: no mirror"):
        client_natsgo.program()
