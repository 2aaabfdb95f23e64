# ruff: noqa: E501  (rows of tables stay in one piece)
"""What a run made, counted: a Parquet index with a row for every lineage, and a datasheet in Markdown and JSON.

Boundary: it reads lineages and writes three files, each in one piece; nothing is decided here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from t1.synthesis.candidate import Stage, StageResult
from t1.synthesis.lineage import Lineage


def write_datasheet(out: Path, lineages: Sequence[Lineage], run: Mapping[str, Any]) -> None:
    """Write index.parquet, datasheet.json and datasheet.md below `out`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    counted = datasheet(lineages, run)
    schema = pa.schema(
        [(name, pa.int32()) for name in ("seed", "rounds", "repairs", "num_assertions")]
        + [("mutation_score", pa.float32()), ("solve_rate", pa.float32()), ("seconds", pa.float32())]
        + [(name, pa.string()) for name in _TEXTS]
    )
    table = pa.Table.from_pylist([row(lineage) for lineage in lineages], schema=schema)
    _whole(out / "index.parquet", lambda file: pq.write_table(table, file))
    _whole(out / "datasheet.json", lambda file: file.write_text(json.dumps(counted, indent=1) + "\n", "utf-8"))
    _whole(out / "datasheet.md", lambda file: file.write_text(_markdown(counted), "utf-8"))


_TEXTS = (
    *("name", "status", "path", "stage", "reason", "detail", "domain", "skill", "difficulty", "origin"),
    *("rewrites", "digest", "evidence"),
)


def _whole(path: Path, write: Any) -> None:
    """A file that is there completely or not at all."""
    scratch = path.with_name(f".{path.name}")
    write(scratch)
    scratch.replace(path)


def row(lineage: Lineage) -> dict[str, Any]:
    """One lineage, for the index."""
    made, rejection = lineage.candidate, lineage.rejection
    status = "accepted" if lineage.accepted else "set aside" if lineage.broken else "rejected"
    folder = {"accepted": f"tasks/{lineage.name}", "rejected": f"rejected/{lineage.name}"}.get(status, "")
    last = {result.stage: result for result in lineage.results}
    stage = rejection.stage if rejection else lineage.results[-1].stage if lineage.results else Stage.PROPOSED
    return {
        "seed": lineage.seed.index,
        "name": lineage.name,
        "status": status,
        "path": folder if made is not None else "",
        "stage": str(stage),
        "reason": rejection.reason if rejection else lineage.broken and "infrastructure",
        "detail": rejection.detail if rejection else lineage.broken,
        "domain": made.domain if made else lineage.seed.domain,
        "skill": made.skill if made else lineage.seed.skill,
        "difficulty": made.difficulty if made else lineage.seed.difficulty,
        "origin": lineage.seed.origin,
        "rounds": made.num_rounds if made else 0,
        "repairs": lineage.repairs,
        "rewrites": ",".join(made.rewrites) if made else "",
        "digest": made.digest if made else "",
        "num_assertions": _found(last, Stage.SOLVABLE, "num_assertions"),
        "mutation_score": _found(last, Stage.DISCRIMINATING, "mutation_score"),
        "solve_rate": _found(last, Stage.USEFUL, "solve_rate"),
        "seconds": sum(result.seconds for result in lineage.results),
        "evidence": json.dumps([result.to_json() for result in lineage.results]),
    }


def _found(results: Mapping[Stage, StageResult], stage: Stage, key: str) -> Any:
    return results[stage].evidence.get(key) if stage in results else None


def datasheet(lineages: Sequence[Lineage], run: Mapping[str, Any]) -> dict[str, Any]:
    """The run in numbers."""
    rows = [row(lineage) for lineage in lineages]
    kept = [each for each in rows if each["status"] == "accepted"]
    results = [result for lineage in lineages for result in lineage.results]
    scores = [each["mutation_score"] for each in kept if each["mutation_score"] is not None]
    stages = {}
    for stage in Stage:
        of = [result for result in results if result.stage is stage]
        if of:
            stages[str(stage)] = {
                "judged": len(of),
                "passed": sum(result.passed for result in of),
                "seconds": round(sum(result.seconds for result in of), 1),
            }
    return {
        "run": dict(run),
        "lineages": dict(Counter(each["status"] for each in rows)),
        "stages": stages,
        "rejections": _counts(f"{r.stage}: {r.reason}" for r in results if not r.passed),
        "final_rejections": _counts(f"{r['stage']}: {r['reason']}" for r in rows if r["status"] == "rejected"),
        "repaired": sum(each["repairs"] > 0 for each in kept),
        "accepted": {
            "tasks": len(kept),
            "domain": _counts(each["domain"] for each in kept),
            "difficulty": _counts(each["difficulty"] for each in kept),
            "rounds": _counts(each["rounds"] for each in kept),
            "rewrites": _counts(kind for each in kept for kind in each["rewrites"].split(",") if kind),
            "assertions_median": median([each["num_assertions"] or 0 for each in kept]) if kept else None,
            "mutation_score_mean": round(sum(scores) / len(scores), 4) if scores else None,
        },
        "contamination": _contamination(results, run.get("held_out", {})),
    }


def _counts(values: Iterable[Any]) -> dict[str, int]:
    """How often each value occurs, the most frequent first."""
    return {str(value): count for value, count in Counter(values).most_common()}


def _contamination(results: Sequence[StageResult], held_out: Mapping[str, int]) -> dict[str, Any]:
    """By evaluation set: how near any candidate came, and how many were turned away."""
    report: dict[str, Any] = {
        name: {"tasks": tasks, "rejected": 0, "nearest": 0.0, "nearest_task": ""} for name, tasks in held_out.items()
    }
    for result in results:
        for name, near in result.evidence.get("held_out", {}).items():
            entry = report.setdefault(name, {"tasks": 0, "rejected": 0, "nearest": 0.0, "nearest_task": ""})
            entry["rejected"] += result.evidence.get("contaminated") == name
            if near["similarity"] > entry["nearest"]:
                entry |= {"nearest": near["similarity"], "nearest_task": near["task"]}
    return report


def _markdown(counted: Mapping[str, Any]) -> str:
    """The same for a person."""
    accepted, run = counted["accepted"], counted["run"]
    lines = [
        "# Datasheet",
        "",
        f"{accepted['tasks']} tasks, accepted from {sum(counted['lineages'].values())} of {run['seeds']} seeds; proposer: "
        f"{run['proposer']}; {run['calls']} paid calls, cost {run['cost']:g}.",
    ]
    if run["stopped"]:
        lines += ["", f"Stopped early: {run['stopped']}."]
    if accepted["mutation_score_mean"] is not None:
        lines += ["", f"Mean mutation score {accepted['mutation_score_mean']:.3f}; median of {accepted['assertions_median']:g} "
                  f"assertions; {counted['repaired']} tasks were repaired on the way."]  # fmt: skip
    stages = [(name, s["judged"], s["passed"], s["judged"] - s["passed"]) for name, s in counted["stages"].items()]
    lines += _table(
        "Stages (each judgement, repaired candidates included)", ("stage", "judged", "passed", "rejected"), stages
    )
    lines += _table("Why candidates were rejected", ("reason", "count"), counted["rejections"].items())
    lines += _table("Why seeds gave no task", ("reason", "count"), counted["final_rejections"].items())
    for name in ("domain", "difficulty", "rounds", "rewrites"):
        lines += _table(f"Accepted, by {name}", (name, "tasks"), accepted[name].items())
    circumstances = [(name, how) for name, how in run["variations"].items()]
    lines += _table("Circumstances under which every solution was run", ("other", "how"), circumstances)
    report = [
        (n, c["tasks"], c["rejected"], c["nearest"], c["nearest_task"]) for n, c in counted["contamination"].items()
    ]
    lines += _table("Contamination", ("evaluation set", "tasks", "rejected", "nearest", "to"), report)
    return "\n".join(lines) + "\n"


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A Markdown table, or nothing without rows."""
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    if not body:
        return []
    return ["", f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header), *body]
