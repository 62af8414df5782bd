"""Are groups without a positive label unlabelled, or negative? Table 5 of Yang et al. 2022.

PFD's teacher term counts all groups either way; its data term counts the positive ones, or all.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict

from experiments.cells import load_settings, parse_arguments, run_cells
from experiments.comparison import Trials
from experiments.letor import LetorSettings, by_set, how_it_was_made, letor_trials
from experiments.ndcg_tables import BASELINE, CUTOFFS, FIRST, Published, gain_figure, ndcg_tables
from experiments.report import Claim, Report, claims_table, percent, write_report
from experiments.trials import VERSION, run_trial
from features.errors import exit_code_of
from features.task import Task

TITLE = "PFD with a data loss over positive query groups, or over all"
ROWS = {
    "No-distillation, positive groups": BASELINE,
    "PFD, positive groups": "pfd_positive",
    "PFD, all groups": "pfd_all",
}
# Yang et al. 2022, Table 5, and Table 4 for no-distillation: NDCG@8, @16, @32, in the order of ROWS
PAPER: Published = {
    "yahoo": (
        (0.517, 0.557, 0.582),
        (0.566, 0.592, 0.614),
        (0.522, 0.547, 0.572),
    ),
    "istella": (
        (0.402, 0.446, 0.472),
        (0.417, 0.461, 0.486),
        (0.413, 0.456, 0.482),
    ),
    "web30k": (
        (0.241, 0.267, 0.301),
        (0.252, 0.281, 0.314),
        (0.236, 0.266, 0.303),
    ),
}
CHANGE: Task = {
    "teachers": [{"name": "privileged", "sees": ["privileged"]}],
    "recipes": [
        {"name": BASELINE},
        {"name": "pfd_positive", "teachers": ["privileged"], "data_loss_groups": "positive"},
        {"name": "pfd_all", "teachers": ["privileged"], "data_loss_groups": "all"},
    ],
    "training": {"loss": "rank_bce"},
    "evaluation": {"cutoffs": list(CUTOFFS), "baseline": BASELINE},
    "export": {"recipe": BASELINE},
}


def claims(name: str, found: Trials) -> list[Claim]:
    """The shape of Table 5."""
    gain = found[FIRST].gain("pfd_positive", "pfd_all")
    statement = f"{name}: PFD with positive groups in its data loss above PFD with all groups in it, in NDCG@8"
    return [Claim(statement, percent(gain), gain.low > 0.0)]


def report(settings: LetorSettings, found: Mapping[str, Trials], quick: bool) -> Report:
    judged = [claim for name, of_set in found.items() for claim in claims(name, of_set)]
    return Report(
        name="unlabelled_groups",
        title=TITLE,
        module="experiments.unlabelled_groups",
        packages=("tensorflow", "numpy"),
        settings=settings.model_dump(mode="json"),
        results={
            "claims": [asdict(claim) for claim in judged],
            "trials": {name: of_set.to_json() for name, of_set in found.items()},
        },
        body=[
            *how_it_was_made(settings, found, quick),
            "Both losses are RankBCE, alpha is 0.5. Gains are over no-distillation. A claim holds where the whole "
            f"interval says so. {_positive_shares(found)}",
            claims_table(judged),
            *ndcg_tables(ROWS, found, PAPER),
        ],
        figure=gain_figure(ROWS, found),
        caption="Gain in NDCG over no-distillation, of PFD with positive groups or all groups in its data loss",
    )


def _positive_shares(found: Mapping[str, Trials]) -> str:
    """How many groups the question is about."""
    shares = (
        f"{name} {of_set.of_split('train', 'positive') / of_set.of_split('train', 'groups'):.1%}"
        for name, of_set in found.items()
    )
    return f"Training groups that are positive: {', '.join(shares)}."


def main() -> None:
    arguments = parse_arguments("unlabelled_groups", TITLE)
    settings = load_settings(arguments.config, LetorSettings)
    cells = letor_trials(settings, arguments.out, arguments.quick, CHANGE)
    results = run_cells(cells, run_trial, arguments.out, arguments.processes, VERSION)
    write_report(report(settings, by_set(cells, results), arguments.quick), arguments.out)
    print(f"wrote {arguments.out / 'unlabelled_groups.md'}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
