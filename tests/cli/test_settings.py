"""The options that the fields of `EvalConfig` declare: one name everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from weakincentives.cli.commands import eval_run
from weakincentives.cli.main import main
from weakincentives.cli.options.settings import OPTIONS_OF_SETTINGS, option_of, settings_of
from weakincentives.eval_config import SETTINGS
from weakincentives.evals.store import open_store

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
GIVEN = {
    "max_concurrent": 3, "timeout": 2.5, "max_retries": 1, "stop_on_error": True, "max_samples": 7,
    "epochs": 2, "experiment_name": "short", "seed": 5, "max_total_tokens": 10,
    "max_total_cost": 1.5, "max_total_seconds": 60.0, "stop_at_width": 0.1, "stop_against": 0.85,
    "cluster_by": "document", "decide_for": "population", "against": "RUN",
    "choose_by": ["A", "B"],
}  # fmt: skip
FORMER = {
    "--max-concurrency": "max_concurrent", "--limit": "max_samples", "--repeat": "epochs",
    "--max-tokens-total": "max_total_tokens", "--max-cost": "max_total_cost",
    "--max-time": "max_total_seconds", "--experiment": "experiment_name",
}  # fmt: skip


def words_of(option: str, value: object) -> list[str]:
    if value is True:
        return [option]
    return [option, *map(str, value if isinstance(value, list) else [value])]


@pytest.mark.parametrize("name", OPTIONS_OF_SETTINGS)
def test_a_field_has_one_name_in_python_and_on_the_command_line(name: str) -> None:
    args = eval_run.parse(["a.py", *words_of(option_of(name), GIVEN[name])])

    assert settings_of(args)[name] == GIVEN[name]


@pytest.mark.parametrize(("option", "name"), FORMER.items())
def test_a_former_name_works_and_says_the_new_one(option: str, name: str) -> None:
    args = eval_run.parse(["a.py", *words_of(option, GIVEN[name])])

    assert settings_of(args) == {name: GIVEN[name]}
    assert args.former == [f"{option} is now {option_of(name)}"]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["--stop-when", "decided", "--fail-under", "85%"], {"stop_against": 0.85}),
        (["--stop-when", "decided", "--against", "RUN"], {"against": "RUN"}),
        (["--stop-when", "10%"], {"stop_at_width": 0.1}),
        (["--stop-when", "never"], {}),
    ],
)
def test_the_rules_of_earlier_versions_still_work(
    words: list[str], settings: dict[str, object]
) -> None:
    rules = dict.fromkeys(("stop_at_width", "stop_against", "against"))

    assert settings_of(eval_run.parse(["a.py", *words])) == {**rules, **settings}


@pytest.mark.parametrize("name", [name for name in SETTINGS if SETTINGS[name].default is None])
def test_none_takes_back_what_a_suite_sets(name: str) -> None:
    if SETTINGS[name].help:
        assert settings_of(eval_run.parse([option_of(name), "none"]))[name] is None


def test_a_run_is_stored_with_the_present_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "run", "sums.py", "--limit", "1", "-x"]) == 0
    assert "wink: --limit is now --max-samples\n" in capsys.readouterr().err
    with open_store() as store:
        command = store.run("latest").manifest.command
    assert command == (
        "wink",
        "eval",
        "run",
        "sums.py:good",
        "--stop-on-error",
        "--max-samples",
        "1",
    )


@pytest.mark.parametrize(
    ("stored", "is_same"),
    [
        ("--seed 1 --limit 2 --epochs 3", True),
        ("--seed 1 --limit 2 --epochs 4", False),
        ("--seed 1 --limit 2 --of-the-future", False),
    ],
)
def test_a_stored_command_is_recognized_by_its_former_names(stored: str, is_same: bool) -> None:
    now = ["wink", "eval", "run", "a.py", "--max-samples", "2", "--epochs", "3", "--seed", "1"]

    assert eval_run.same_command(f"wink eval run a.py {stored}".split(), now) is is_same


def row_of(name: str) -> str:
    declared = SETTINGS[name]
    metavar = declared.metavar or "|".join(declared.kind.choices).replace("|", " or ")
    options = [*declared.short, f"{option_of(name)} {metavar}".strip()]
    default = "" if declared.default in (None, ()) else repr(declared.default).replace("'", '"')
    help = declared.help.partition(" (default")[0]
    return f"| `{name}` | `{'`, `'.join(options)}` | {default} | {help} |"


def test_the_reference_lists_every_field_with_its_option() -> None:
    table = "\n".join(map(row_of, OPTIONS_OF_SETTINGS))

    assert table in REFERENCE.read_text(), f"expected in {REFERENCE.name}:\n{table}"
