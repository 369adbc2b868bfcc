"""A small comparison with other tools: the floor and WINK, and the page that it writes."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import __main__ as command
from bench.peers.drivers.harness import expected, passing
from bench.peers.environments import TOOLS, Environment, SetupError, choose_python, prepare
from bench.peers.measure import Outcome, check, measure, run_all
from bench.peers.measurements import FULL, Measurement, measurements
from bench.peers.page import (
    BEGIN,
    END,
    QUOTE,
    Comparison,
    absent,
    losses,
    render,
    write,
    write_quote,
)

pytestmark = pytest.mark.slow  # it starts processes

README = Path(__file__).parent.parent / "README.md"
PAGE = README.parent / "docs" / "benchmarks.md"
TINY = {each.name.partition("-")[0]: each for each in measurements(250)}


def in_this_environment(name: str) -> Environment:
    """Use this environment, which has WINK and the OpenAI SDK, instead of one of the tool's own."""
    return Environment(TOOLS[name], Path(sys.executable))


@pytest.mark.parametrize("part", ["import", "in", "http", "load", "resume"])
@pytest.mark.parametrize("tool", ["floor", "wink"])
def test_the_floor_and_wink_do_the_work(tool: str, part: str) -> None:
    outcome = measure(
        in_this_environment(tool), replace(TINY[part], count=TINY[part].count or 1), limit=120
    )

    assert outcome.missing == outcome.note == ""
    assert outcome.seconds is not None
    assert outcome.seconds > 0
    assert part == "import" or (outcome.peak_mb or 0) > 1


def test_rounds_are_in_turns_and_variants_only_over_http() -> None:
    announced: list[Outcome] = []
    wanted = [
        Measurement("in-process-5", "", ("in_process",), 5, rounds=2),
        Measurement("http-0", "", ("http",), 5, 5, refusing=True, rounds=1),
    ]

    found = run_all(
        [in_this_environment("floor"), in_this_environment("floor-sdk")],
        wanted,
        120,
        announced.append,
    )

    assert found == announced
    assert [(each.tool, each.rounds) for each in found] == [
        ("floor", 2),
        ("floor", 1),
        ("floor-sdk", 1),
    ]
    assert all(each.note == "" for each in found), found


def test_a_driver_that_hangs_fails_or_is_missing_is_a_result(tmp_path: Path) -> None:
    slow = Measurement("slow", "", ("http",), 5, 1, delay=60)
    assert measure(in_this_environment("floor"), slow, limit=0.5).missing == "not done in 0 s"

    assert (
        measure(in_this_environment("inspect"), TINY["in"], limit=60).missing
        == "failed with exit code 1"
    )
    not_installed = Environment(TOOLS["inspect"], tmp_path, "could not be installed")
    assert measure(not_installed, TINY["in"], limit=60).missing == "could not be installed"


def test_a_tool_that_does_not_score_is_noticed() -> None:
    assert [expected(index) for index in (0, 1, 10)] == ["no", "yes", "no"]
    assert passing(11) == sum(expected(index) == "yes" for index in range(11))
    assert check({"passed": 9, "errors": 0}, 10) == ""
    assert check({"passed": 10, "errors": 0}, 10) == "10 samples passed, 9 should"
    assert check({"passed": 9, "errors": 1}, 10) == "1 of 10 samples ended in errors"


def comparison() -> Comparison:
    wanted = measurements(FULL)
    times = {"floor": 1.0, "wink": 2.0, "pydantic-evals": 1.5, "inspect": 400.0}
    outcomes = [
        Outcome(tool, each.name, seconds, seconds, 50.0 if tool != "inspect" else 49.0)
        for each in wanted
        for tool, seconds in times.items()
    ]
    late, cannot = f"in-process-{FULL}", f"resume-{2 * FULL}"
    outcomes = [
        replace(each, seconds=None, missing="not done in 300 s")
        if (each.tool, each.measurement) == ("inspect", late)
        else replace(each, seconds=None, missing="cannot: keeps results in memory")
        if (each.tool, each.measurement) == ("pydantic-evals", cannot)
        else replace(each, note="3 of 9 samples ended in errors")
        if (each.tool, each.measurement) == ("inspect", "http-429")
        else each
        for each in outcomes
    ]
    return Comparison(outcomes, wanted, FULL, 300, "2 cores", "November 2026")


def test_the_page_has_ratios_losses_and_what_is_missing() -> None:
    text = render(comparison())
    rows = [line for line in text.splitlines() if line.startswith("| Inspect AI")]

    assert len(rows) == 5  # to the floor, to WINK, seconds, CPU, memory
    assert [cell.strip() for cell in rows[0].split("|")[2:5]] == ["400", "400", "> 300 s"]
    assert [cell.strip() for cell in rows[1].split("|")[2:5]] == ["200", "200", "> 300 s"]
    assert "400 *" in rows[2]
    assert "| cannot |" in next(line for line in text.splitlines() if "pydantic-evals 2." in line)
    assert absent(Outcome("inspect", "import", missing="needs Python 3.12")) == "–"
    assert "- Inspect AI: 3 of 9 samples ended in errors (10 % 429s, 2,000)." in text
    assert "- pydantic-evals: cannot: keeps results in memory (resume, 100,000 done)." in text
    assert "100,000 done" in text


def test_losses_in_time_and_memory_are_listed() -> None:
    lines = losses(comparison())

    assert "- pydantic-evals is 1.33 times as fast: import." in lines
    assert "- Inspect AI needs less memory, 49 MB against 50 MB: load 10,000." in lines
    assert not any(TOOLS["floor"].title in line for line in lines)


def test_only_the_part_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")

    write(comparison(), page)

    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n## The field")
    assert text.endswith(f"{END}\nafter\n")
    assert "old\n" not in text
    image = ElementTree.parse(tmp_path / "benchmarks-peers.svg").getroot()
    bars = [each for each in image.iter() if each.get("class", "").startswith("bar")]
    assert len(bars) == 4 * 3 - 1  # the one that took too long has no bar
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="once in"):
        write(comparison(), page)


def test_the_page_in_the_docs_can_be_written() -> None:
    text = PAGE.read_text("utf-8")

    assert text.count(BEGIN) == text.count(END) == 1
    assert "## HTTP client" in text


def test_the_readme_quotes_the_fastest_other_tool(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{QUOTE}\nold\n{END}\nafter\n")

    on_sdk = Outcome("wink-sdk", "http-100", 3.0, 3.0, 50.0)
    write_quote(replace(comparison(), outcomes=[*comparison().outcomes, on_sdk]), readme)

    assert readme.read_text() == (
        f"before\n{QUOTE}\nTime of the fastest other tool, as a multiple of WINK's: "
        "0.75 (pydantic-evals; in process, 50,000 samples) and "
        "0.75 (pydantic-evals; HTTP 100 ms, 2,000 samples). Over HTTP, WINK uses its own client; "
        f"with the OpenAI SDK in both tools, the ratio is 0.5.\n{END}\nafter\n"
    )


def test_the_ratios_in_the_readme_are_those_of_the_page() -> None:
    text = " ".join(README.read_text("utf-8").partition(QUOTE)[2].partition(END)[0].split())
    table = PAGE.read_text("utf-8").partition("### Times WINK")[2].partition("###")[0]
    titles, *rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]

    quoted = re.findall(r"([\d.]+) \(([\w-]+); (.+?) samples\)", text)
    assert len(quoted) == 2
    for ratio, tool, title in quoted:
        (row,) = (cells for cells in rows if cells[0].startswith(f"| {tool} "))
        assert float(row[titles.index(title)]) == float(ratio)


def test_the_command_refuses_what_it_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["10"], ["--only", "nope"], ["--page", "missing.md"]):
        with pytest.raises(SystemExit):
            command.main(arguments)
    assert command.main(["--part", "nope"]) == 2
    assert command.main(["--python", "/nowhere/python"]) == 2
    error = capsys.readouterr().err
    assert "at least 250" in error
    assert "expected a Markdown file to update, got missing.md" in error
    assert "expected the start of a measurement's name" in error
    assert "expected Python 3.11 or newer, got nothing that runs (/nowhere/python)" in error


def test_an_environment_needs_a_python_that_the_tool_supports() -> None:
    with pytest.raises(SetupError, match=r"3\.11 or newer"):
        choose_python("/nowhere")
    tool = replace(TOOLS["weakincentives"], python=(99, 0))
    assert prepare(tool, sys.executable).problem == "needs Python 99.0"


def test_every_pin_is_exact() -> None:
    for tool in TOOLS.values():
        pins = [*tool.packages, *tool.npm] if tool.peer else []
        assert all("==" in pin or "@" in pin for pin in pins)
        assert not tool.peer or tool.version[:1].isdigit()
