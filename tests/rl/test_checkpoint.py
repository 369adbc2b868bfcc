"""A training that was killed continues, and its history is the same as without the kill."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rl.policies import SUMS, TablePolicy
from weakincentives.errors import UsageError
from weakincentives.evals import Sample, exact_match
from weakincentives.rl import DataBuffer, RLTrainingConfig, run_rl_training

ROOT = Path(__file__).parents[2]

TRAINING = """
import json, os, signal, sys
import anyio
from tests.rl.policies import SUMS, TablePolicy
from weakincentives.evals import exact_match
from weakincentives.rl import DataBuffer, RLTrainingConfig, drop_zero_spread, run_rl_training

folder, killed_at = sys.argv[1], int(sys.argv[2])
policy = TablePolicy()

async def endpoint(messages):
    if messages[-1].content == "0+0":  # goes back to the buffer, step after step
        await anyio.sleep_forever()
    return await policy.endpoint(messages)

def on_step(entry, report):
    if entry["step"] == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)

config = RLTrainingConfig(
    num_steps=8, batch_size=4, group_size=4, seed=7, checkpoint_every=3, over_sampling=1,
    endpoint=endpoint, max_concurrent=8, filters=(drop_zero_spread,),
)
training = (policy, DataBuffer(SUMS[:6], seed=7), exact_match, config)

async def main():
    return await run_rl_training(*training, on_step=on_step, checkpoint=folder)

history = anyio.run(main)
print(json.dumps([history, policy.logits.tolist(), policy.version]))
"""


def run_training(folder: Path, killed_at: int = -1) -> tuple[int, str]:
    """Run a training in a separate process; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(folder), str(killed_at)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    return done.returncode, done.stdout or done.stderr


def test_a_killed_training_continues_with_the_same_history(tmp_path: Path) -> None:
    code, whole = run_training(tmp_path / "whole")
    assert code == 0, whole

    folder = tmp_path / "killed"
    assert run_training(folder, killed_at=1) == (-9, "")  # before anything was stored
    assert run_training(folder, killed_at=4) == (-9, "")  # a step after the last checkpoint
    assert run_training(folder) == (0, whole)
    assert len(json.loads(whole)[0]) == 8


class OwnFile(TablePolicy):
    """A policy that writes its weights to its own file, as large ones do."""

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, self.logits)

    def load(self, path: Path) -> None:
        self.logits = np.load(path)


class OwnFolder(TablePolicy):
    """A policy that writes its weights to its own folder."""

    def save(self, path: Path) -> None:
        path.mkdir()
        np.save(path / "logits.npy", self.logits)

    def load(self, path: Path) -> None:
        self.logits = np.load(path / "logits.npy")


def config(num_steps: int, **more: Any) -> RLTrainingConfig:
    settings = {"batch_size": 2, "group_size": 3, "checkpoint_every": 2, **more}
    return RLTrainingConfig(num_steps=num_steps, **settings)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [OwnFile, OwnFolder])
async def test_a_backend_may_write_its_own_files(kind: type[TablePolicy], tmp_path: Path) -> None:
    async def run(steps: int, folder: str) -> tuple[list[dict[str, Any]], TablePolicy]:
        policy = kind()
        history = await run_rl_training(
            policy, DataBuffer(SUMS), exact_match, config(steps), checkpoint=tmp_path / folder
        )
        return history, policy

    whole, policy = await run(5, "whole")
    await run(3, "parts")
    history, again = await run(5, "parts")

    assert history == whole
    assert np.array_equal(again.logits, policy.logits)
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == [
        "backend-5",
        "state.json",
    ]


@pytest.mark.anyio
async def test_a_stored_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    for steps in (3, 3, 4):
        (tmp_path / "backend-4").mkdir(
            exist_ok=True
        )  # left by a process that was killed while writing
        await run_rl_training(
            OwnFolder(), DataBuffer(SUMS), exact_match, config(steps), checkpoint=tmp_path
        )

    assert (tmp_path / "backend-4" / "logits.npy").exists()


@pytest.mark.anyio
async def test_a_backend_that_writes_elsewhere_is_refused(tmp_path: Path) -> None:
    class Elsewhere(OwnFile):
        def save(self, path: Path) -> None:
            np.save(path, self.logits)  # adds `.npy`

    with pytest.raises(UsageError, match=r"Elsewhere.save` to write .*backend-2, got no such file"):
        await run_rl_training(
            Elsewhere(), DataBuffer(SUMS), exact_match, config(2), checkpoint=tmp_path
        )
    assert not (tmp_path / "state.json").exists()


@pytest.mark.anyio
async def test_a_training_that_ran_out_of_samples_is_stored_at_its_end(tmp_path: Path) -> None:
    for _ in range(2):
        history = await run_rl_training(
            TablePolicy(),
            DataBuffer(iter(SUMS[:5])),
            exact_match,
            config(9),
            checkpoint=tmp_path,
        )
        assert [entry["groups"] for entry in history] == [2, 2, 1]
    assert len(json.loads((tmp_path / "state.json").read_bytes())["history"]) == 3


@pytest.mark.anyio
async def test_no_secret_of_a_sample_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_API_KEY", "open-sesame-open-sesame")
    secret_sample = Sample("secret", "say open-sesame-open-sesame", "")
    buffer = DataBuffer([*SUMS, secret_sample])
    buffer.add_samples([replace(secret_sample, id=str(number)) for number in range(5)])

    await run_rl_training(TablePolicy(), buffer, exact_match, config(2), checkpoint=tmp_path)

    assert buffer.waiting == 1
    assert b"sesame" not in (tmp_path / "state.json").read_bytes()


@pytest.mark.anyio
async def test_a_training_with_other_settings_does_not_continue(tmp_path: Path) -> None:
    async def run(settings: RLTrainingConfig) -> Any:
        return await run_rl_training(
            TablePolicy(), DataBuffer(SUMS), exact_match, settings, checkpoint=tmp_path
        )

    await run(config(1))
    with pytest.raises(UsageError, match="expected to resume with group_size=3, got 4"):
        await run(config(2, group_size=4))
    assert len(await run(config(2))) == 2
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(UsageError, match=r"state\.json"):
        await run(config(2))
