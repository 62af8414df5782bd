"""`python -m trainer compare`: trains every recipe with several seeds, compares them, and recommends one."""

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from trainer.config import TrainerConfig
from trainer.evaluation.metrics import Floats, PairedBootstrap
from trainer.evaluation.recommendation import Candidate, Recommendation, recommend
from trainer.evaluation.summary import display_name, metric_columns, sorted_models, table_lines
from trainer.pipeline.evaluate import PerGroup, load_per_group, summarise
from trainer.pipeline.fit import explained_errors, print_stage, train_and_evaluate
from trainer.pipeline.inputs import DataPaths
from trainer.pipeline.report import save_chart
from trainer.pipeline.run import Run
from trainer.pipeline.scores import BM25, SUM, ZERO_SHOT
from trainer.storage.stages import claim_workdir, write_file

COMPARISON, CHART = "comparison.json", "comparison.png"
_SERVABLE_REFERENCES = (BM25, ZERO_SHOT, SUM)


def compare_recipes(config: TrainerConfig, data: DataPaths, workdir: str, seeds: int) -> dict[str, Any]:
    """Trains and evaluates all recipes with `seeds` seeds, the task's first; writes comparison.json and .png.

    Each seed is a run of its own in workdir/seed_N, without an export; finished stages are skipped. A group's value is
    its mean over the seeds; intervals resample groups. Returns the content of comparison.json. Errors: InputError.
    """
    workdir = workdir.rstrip("/")
    claim_workdir(workdir, config.name)
    metrics: list[dict[str, Any]] = []
    for seed in range(config.seed, config.seed + seeds):
        folder = f"{workdir}/seed_{seed}"
        print_stage(f"seed {seed}: {folder}")
        with explained_errors(data, folder):
            run = Run(replace(config, seed=seed), data, folder, frozen_states=f"{workdir}/frozen_states")
            claim_workdir(folder, config.name)
            metrics.append(train_and_evaluate(run))
    per_group = _mean_over_seeds([load_per_group(f"{workdir}/seed_{m['seed']}") for m in metrics])
    kinds = {name: model["kind"] for name, model in metrics[0]["models"].items()}
    comparison = {**summarise(run, per_group, kinds, metrics[0]["bm25"]), "seeds": [m["seed"] for m in metrics]}
    comparison["seed"] = config.seed
    for name, model in comparison["models"].items():
        for column in metric_columns(comparison):
            model[column]["by_seed"] = [m["models"][name][column]["value"] for m in metrics]
    main, *_, last = metric_columns(comparison)
    decides = last if comparison["relevance_test_groups"] else main
    recommended, reasons = _recommended(config, per_group[decides])
    comparison |= {"decided_by": decides, "recommended": recommended, "reasons": list(reasons)}
    comparison["over_references"] = {
        metric: _over_references(config, per_group[metric], recommended) for metric in dict.fromkeys([decides, main])
    }
    write_file(f"{workdir}/{COMPARISON}", (json.dumps(comparison, indent=1) + "\n").encode())
    save_chart(comparison, f"{workdir}/{CHART}")
    print_stage(f"wrote {workdir}/{COMPARISON} and {workdir}/{CHART}")
    print("\n".join(["", *comparison_lines(comparison)]), flush=True)
    return comparison


def _mean_over_seeds(per_seed: list[PerGroup]) -> PerGroup:
    return {
        metric: {name: np.mean([seed[metric][name] for seed in per_seed], axis=0) for name in models}
        for metric, models in per_seed[0].items()
    }


def _bootstrap(config: TrainerConfig, values: dict[str, Floats]) -> PairedBootstrap:
    evaluation, groups = config.evaluation, len(next(iter(values.values())))
    return PairedBootstrap(groups, evaluation.bootstrap_samples, evaluation.confidence, seed=config.seed)


def _recommended(config: TrainerConfig, values: dict[str, Floats]) -> Recommendation:
    """values: [groups] of each model, of the metric that decides."""
    recipes = [
        Candidate(r.name, values[r.name], _trained(config, r.name), bool(r.teachers)) for r in config.recipes.values()
    ]
    references = [Candidate(name, values[name], 0) for name in _SERVABLE_REFERENCES if name in values]
    return recommend(recipes, references, _bootstrap(config, values))


def _over_references(config: TrainerConfig, values: dict[str, Floats], recipe: str) -> dict[str, dict[str, float]]:
    """The recipe's relative gain over each reference that could be served. values: [groups] of each model."""
    bootstrap = _bootstrap(config, values)
    present = [name for name in _SERVABLE_REFERENCES if name in values]
    return {name: asdict(bootstrap.relative_gain(values[recipe], values[name])) for name in present}


def _trained(config: TrainerConfig, name: str) -> int:
    """How many models a recipe takes: its own, its teachers' with all folds, and the recipes that it builds on."""
    needed, open_names = set(), [name]
    teachers: set[str] = set()
    while open_names:
        recipe = config.recipes[open_names.pop()]
        if not recipe.averages:
            needed.add(recipe.name)
        teachers.update(recipe.teachers)
        open_names += [other for other in (recipe.starts_from, *recipe.averages) if other]
    return len(needed) + sum(config.teachers[teacher].folds for teacher in teachers)


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """The table of `comparison`, the range of each recipe over the seeds, and the recommendation."""
    decides, seeds = comparison["decided_by"], comparison["seeds"]
    lines = [*table_lines(comparison), "", f"{decides} by seed ({', '.join(map(str, seeds))}):"]
    for name, model in sorted_models(comparison):
        if model["kind"] == "student":
            values = ", ".join(f"{value:.4f}" for value in model[decides]["by_seed"])
            lines.append(f"  {display_name(name, model)}: {values}")
    lines += ["", f"recommended: {comparison['recommended']}", *(f"  {reason}" for reason in comparison["reasons"])]
    for metric, gains in comparison["over_references"].items():
        for name, gain in gains.items():
            interval = f"{gain['value']:+.1%} [{gain['low']:+.1%}, {gain['high']:+.1%}]"
            lines.append(f"  {metric} over {display_name(name, comparison['models'][name])}: {interval}")
    return lines
