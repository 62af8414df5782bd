"""Methods on LETOR sets: their task, the paper's figures, the claims and the report."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.pfd.letor_methods import EXPERIMENT, METHODS, PAPER, PAPER_SETS, LetorMethodsSettings
from experiments.runner.comparison import TrialResult, Trials
from experiments.runner.experiment import load_settings
from trainer.config import load_config

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "experiments" / "configs" / "letor_methods.yaml"


def settings_of_rank_bce() -> LetorMethodsSettings:
    return load_settings(str(CONFIG), LetorMethodsSettings).model_copy(update={"losses": ("rank_bce",)})


def test_the_methods_are_one_valid_task(tmp_path: Path) -> None:
    settings = load_settings(str(CONFIG), LetorMethodsSettings)
    cell = EXPERIMENT.cells(settings, tmp_path, True)[0]
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(cell["task"]))
    config = load_config(str(tmp_path / "task.yaml"))
    # the self-distilled student's teacher has no row, for it is the baseline
    models = {f"{name}_{loss}" for name in (*METHODS.values(), "teacher_self") for loss in settings.losses}
    assert models == {*config.recipes, *(f"teacher_{name}" for name in config.teachers)}
    assert config.teacher_training["gen_rank_net"].loss == config.recipe_training["pfd_rank_net"].loss == "rank_net"


def test_the_papers_gains_follow_from_the_papers_figures() -> None:
    # Yang et al. 2022, Table 2: PFD's gain in NDCG@8, of figures rounded to three digits
    gains = {("yahoo", "rank_bce"): 0.095, ("istella", "rank_bce"): 0.037, ("web30k", "rank_net"): 0.034}
    for (name, loss), gain in gains.items():
        rows = dict(zip(METHODS, PAPER[name, loss], strict=True))
        assert rows["PFD student"][0] / rows["No-distillation"][0] - 1 == pytest.approx(gain, abs=0.006)
    assert {name for name, _ in PAPER} == set(PAPER_SETS)


def trials_of(**ndcg: list[float]) -> Trials:
    """Two seeds of the same figures by model, of RankBCE."""
    queries = [f"q{i}" for i in range(len(ndcg["pfd"]))]
    models = {name if name in ("lambdamart", "random_order") else f"{name}_rank_bce": v for name, v in ndcg.items()}
    result: dict[str, Any] = {
        "queries": queries,
        "per_group": {f"ndcg@{cutoff}": models for cutoff in (8, 16, 32)},
        "splits": {s: {"groups": 100, "positive": 20, "items": 1500} for s in ("train", "test")},
        "histories": {name: {"steps": [20, 40], "validation_ndcg": [0.3, 0.4]} for name in models},
    }
    return Trials([TrialResult(seed, result) for seed in (1, 2)])


FIGURES = {
    "no_distillation": [0.4, 0.5, 0.6, 0.5] * 5,
    "self_distillation": [0.5, 0.4, 0.6, 0.5] * 5,
    "teacher_gen": [0.3] * 20,
    "gend": [0.35] * 20,
    "teacher_privileged": [0.7] * 20,
    "pfd": [0.5, 0.6, 0.65, 0.55] * 5,
    "lambdamart": [0.5] * 20,
    "random_order": [0.2] * 20,
}


def test_claims_hold_by_their_intervals() -> None:
    settings = settings_of_rank_bce()
    above, over_self, not_below = EXPERIMENT.claims(settings, {"small": trials_of(**FIGURES)})
    assert above.held
    assert above.measured.startswith("+15.0%")
    assert over_self.held
    assert not_below.held
    below = trials_of(**{**FIGURES, "pfd": [0.1] * 20, "self_distillation": [0.2] * 20})
    worse = EXPERIMENT.claims(settings, {"small": below})
    assert [claim.held for claim in worse] == [False, False, False]


def test_the_report_shows_every_method_beside_the_paper_and_what_is_not_at_hand() -> None:
    report = EXPERIMENT.report(settings_of_rank_bce(), {"mq2008": trials_of(**FIGURES)}, quick=False)
    page = "\n".join(report.body)
    assert "the behaviour is simulated" in page
    for label in (*METHODS, "LambdaMART (LightGBM)", "random order"):
        assert f"| {label} " in page, label
    assert "0.575 [" in page
    assert "(+15.0% [" in page
    assert "| mq2008          | 100 " in page
    for line in page.splitlines():
        if line.startswith("| PFD student") and "not at hand" in line:
            assert any(figure in line for figure in ("0.566", "0.417", "0.252"))
