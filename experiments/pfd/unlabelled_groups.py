"""Are groups without a positive label unlabelled, or negative? Table 5 of Yang et al. 2022.

PFD's teacher term counts all groups either way; its data term counts the positive ones, or all.
"""

from collections.abc import Mapping

from experiments.letor.ndcg_tables import BASELINE, FIRST, Published
from experiments.letor.table_experiment import table_experiment
from experiments.runner.comparison import Trials
from experiments.runner.report import Claim, percent

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


def _claims(name: str, found: Trials) -> list[Claim]:
    """The shape of Table 5."""
    gain = found[FIRST].gain("pfd_positive", "pfd_all")
    statement = f"{name}: PFD with positive groups in its data loss above PFD with all groups in it, in NDCG@8"
    return [Claim(statement, percent(gain), gain.low > 0.0)]


def _about(found: Mapping[str, Trials]) -> str:
    shares = ", ".join(f"{name} {of_set.positive_share('train'):.1%}" for name, of_set in found.items())
    return (
        "Both losses are RankBCE, alpha is 0.5. Gains are over no-distillation. A claim holds where the whole "
        f"interval says so. Training groups that are positive: {shares}."
    )


EXPERIMENT = table_experiment(
    name="unlabelled_groups",
    title="PFD with a data loss over positive query groups, or over all",
    task={
        "recipes": [
            {"name": BASELINE},
            {"name": "pfd_positive", "teachers": ["privileged"], "data_loss_groups": "positive"},
            {"name": "pfd_all", "teachers": ["privileged"], "data_loss_groups": "all"},
        ]
    },
    rows=ROWS,
    published=PAPER,
    claims=_claims,
    about=_about,
    caption="Gain in NDCG over no-distillation, of PFD with positive groups or all groups in its data loss",
)
