"""Slice and dice the reports that the maths evals saved in outputs/evals."""

from __future__ import annotations

from pathlib import Path

from weakincentives.evals import EvalReport
from weakincentives.evals.analysis import group_by, summarize

# ── Load results ────────────────────────────────────────────────────────────────────────────────
runs = [EvalReport.load(p) for p in sorted(Path("outputs/evals").glob("math_*"))]
if not runs:
    raise SystemExit("no results in outputs/evals - run: python examples/math/baseline.py")

# ── Slice by difficulty ─────────────────────────────────────────────────────────────────────────
for run in runs:
    print(f"\n=== {run.config['experiment_name']} ===")
    print(f"Overall: {run.summary['mean']:.2%} ({run})")

    by_difficulty = group_by(run.results, key=lambda r: r.metadata["difficulty"])
    for level, results in sorted(by_difficulty.items()):
        stats = summarize(results)
        print(f"  Level {level}: {stats['mean']:.2%} (n={stats['n']})")

# ── Inspect failures ────────────────────────────────────────────────────────────────────────────
latest = runs[-1]
failures = [r for r in latest.results if r.score.reward < 0.5]
print(f"\n=== Failed Samples ({len(failures)}) ===")
for r in failures[:5]:
    print(f"  {r.sample_id}: reward={r.score.reward:.2f}  {r.sample.input['problem']}")
    for m in r.score.metrics:
        print(f"    {m.name}: {m.value}" + (f" (w={m.weight})" if m.weight > 0 else ""))
