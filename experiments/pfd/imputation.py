"""Could the teacher serve, its privileged features made up? Table 6 of Yang et al. 2022, a warning."""

from experiments.letor.ndcg_tables import BASELINE, FIRST, Published
from experiments.letor.table_experiment import table_experiment
from experiments.runner.comparison import Trials
from experiments.runner.report import Claim, percent

TEACHER = "teacher_privileged"
IMPUTED = {"zero": f"{TEACHER}_imputed_zero", "mean": f"{TEACHER}_imputed_mean"}
ROWS = {
    "Teacher, true values*": TEACHER,
    "Teacher, zero imputation": IMPUTED["zero"],
    "Teacher, mean imputation": IMPUTED["mean"],
    "No-distillation": BASELINE,
    "random order": "random_order",
}
# Yang et al. 2022, Table 6, and Table 4 for true values: NDCG@8, @16, @32, in the order of ROWS
PAPER: Published = {
    "yahoo": (
        (0.613, 0.638, 0.651),
        (0.329, 0.378, 0.418),
        (0.357, 0.408, 0.445),
        (0.517, 0.557, 0.582),
    ),
    "istella": (
        (0.424, 0.466, 0.490),
        (0.210, 0.249, 0.285),
        (0.244, 0.284, 0.316),
        (0.402, 0.446, 0.472),
    ),
    "web30k": (
        (0.249, 0.281, 0.312),
        (0.177, 0.210, 0.247),
        (0.181, 0.211, 0.247),
        (0.241, 0.267, 0.301),
    ),
}


def _claims(name: str, found: Trials) -> list[Claim]:
    """The shapes of Table 6, and of Table 4's teacher."""
    compared = found[FIRST]
    gain_true = compared.gain(TEACHER, BASELINE)
    judged = [
        Claim(
            f"{name}: the teacher that is told the truth above no-distillation", percent(gain_true), gain_true.low > 0.0
        )
    ]
    for way, model in IMPUTED.items():
        gain = compared.gain(model, BASELINE)
        judged.append(Claim(f"{name}: with {way} imputation below no-distillation", percent(gain), gain.high < 0.0))
    return judged


EXPERIMENT = table_experiment(
    name="imputation",
    title="The teacher as a server: privileged features imputed at test",
    task={"evaluation": {"impute": list(IMPUTED)}},
    rows=ROWS,
    published=PAPER,
    claims=_claims,
    about=lambda _: (
        "One teacher, trained with true values, ranks the test groups three times: with true values (marked *: "
        "nobody has them when a query arrives), with 0 for each privileged feature, and with its mean over the "
        "training split. Gains are over no-distillation; a claim holds where the whole interval says so."
    ),
    caption="Gain in NDCG over no-distillation, of the teacher with true and with imputed privileged features",
)
