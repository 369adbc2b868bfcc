"""A damaged file of results is imported, or refused with its name: never another exception."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.result_files import WRITERS, inspect_log
from tests.contrib.test_importers import DATA, FILES
from weakincentives.contrib.importers import FORMATS, read_reports, store_reports
from weakincentives.errors import WinkError
from weakincentives.evals import RunStore, open_store
from weakincentives.evals.store.overview import overview

OUTCOMES = [("a", "pass"), ("a", "fail"), ("b", "error")]
SYSTEMS = {"older verifiers": "verifiers", "oaieval": "openai-evals"}
ODD: list[Any] = [
    *(None, True, 0, -1, 2**63, 10**400, 1e308, float("nan"), float("-inf"), "", "x" * 600, "C"),
    *(
        "attachment://x",
        "\ud800",
        "\0",
        [],
        {},
        [None],
        [[]],
        [{}],
        {"": None},
        {"id": 1},
        [1, "a"],
    ),
]
MUTATIONS = 60


def cases() -> Iterator[Any]:
    """Yield each file, and the system that wrote it, if it need not be recognised."""
    for name, system in FILES.items():
        yield pytest.param(name, system, id=name)
    for name in WRITERS:
        system = SYSTEMS.get(name, name.partition(" ")[0])
        assert system in FORMATS
        yield pytest.param(name, system, id=name)


def sample_file(name: str, folder: Path) -> Path:
    return WRITERS[name](folder, OUTCOMES) if name in WRITERS else DATA / name


def check(path: Path, store: RunStore, system: str | None) -> bool:
    """Import a file; return whether that worked. All that may be raised is ours, with the name."""
    before, problem = store.runs(1), ""
    try:
        reports = read_reports(path, system, max_bytes=1 << 22)
        run_ids = store_reports(store, reports)
    except WinkError as error:
        problem = str(error)
    if problem:
        assert path.name in problem
        assert store.runs(1) == before
        return False
    for run_id, report in zip(run_ids, reports, strict=True):
        record = store.run(run_id)
        assert record.total == len(report.results)
        assert (record.status == "complete") == (not report.stopped)
        assert str(report) == str(store.report(run_id)) == str(overview(store, run_id))
    return True


@pytest.mark.parametrize(("name", "system"), [*cases()])
def test_bytes_that_changed_are_imported_or_refused(name: str, system: str, tmp_path: Path) -> None:
    original = sample_file(name, tmp_path).read_bytes()
    random_ = random.Random(name)
    suffix = ".eval" if name.endswith(".eval") else ".json"
    path = tmp_path / f"damaged{suffix}"

    with open_store(tmp_path / "runs.db") as store:
        for index in range(MUTATIONS):
            data = bytearray(original)
            for _ in range(random_.choice([1, 1, 3, 30])):
                data[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
            if index % 4 == 0:
                del data[random_.randrange(len(data)) :]
            path.write_bytes(data)
            check(path, store, random_.choice([system, None]))


def places(value: Any, found: list[Any]) -> list[Any]:
    """Return each place in a JSON value: its container and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            places(inner, found)
    return found


@pytest.mark.parametrize(("name", "system"), [*cases()])
def test_values_of_other_types_are_imported_or_refused(
    name: str, system: str, tmp_path: Path
) -> None:
    log = name.endswith(".eval")
    if log:
        file, data = tmp_path / "odd.eval", json.dumps(inspect_log(OUTCOMES))
    else:
        file, data = tmp_path / "odd.json", sample_file(name, tmp_path).read_text()
    lines = data.splitlines() if system not in {"promptfoo", "simple-evals"} else [data]
    random_ = random.Random(name)
    worked = 0

    with open_store(tmp_path / "runs.db") as store:
        for _ in range(MUTATIONS):
            rows = [json.loads(line) for line in lines] if len(lines) < 20 else [json.loads(data)]
            for _ in range(random_.choice([1, 1, 2, 5])):
                if not (found := places(rows, [])):
                    break
                container, key = random_.choice(found)
                container[key] = deepcopy(random_.choice(ODD))
                if random_.random() < 0.2 and isinstance(container, dict):
                    del container[key]
            texts = [json.dumps(row) for row in rows]
            if log and isinstance(rows[0], dict) and isinstance(rows[0].get("samples"), list):
                with zipfile.ZipFile(file, "w") as archive:
                    for index, row in enumerate(rows[0].pop("samples")):
                        archive.writestr(f"samples/{index}.json", json.dumps(row))
                    archive.writestr("header.json", json.dumps(rows[0]))
            else:
                file.write_text("\n".join(texts))
            worked += check(file, store, random_.choice([system, None]))
    assert worked  # many values do not matter, so that rows with odd values reach the store
