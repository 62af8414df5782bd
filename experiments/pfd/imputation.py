"""Could the teacher serve, its privileged features made up? Table 6 of Yang et al. 2022, a warning."""

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

TITLE = "The teacher as a server: privileged features imputed at test"
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
CHANGE: Task = {
    "teachers": [{"name": "privileged", "sees": ["privileged"]}],
    "recipes": [{"name": BASELINE}],
    "training": {"loss": "rank_bce"},
    "evaluation": {"cutoffs": list(CUTOFFS), "baseline": BASELINE, "impute": list(IMPUTED)},
    "export": {"recipe": BASELINE},
}


def claims(name: str, found: Trials) -> list[Claim]:
    """The shapes of Table 6, and of Table 4's teacher."""
    compared = found[FIRST]
    told = compared.gain(TEACHER, BASELINE)
    judged = [Claim(f"{name}: the teacher that is told the truth above no-distillation", percent(told), told.low > 0.0)]
    for way, model in IMPUTED.items():
        gain = compared.gain(model, BASELINE)
        judged.append(Claim(f"{name}: with {way} imputation below no-distillation", percent(gain), gain.high < 0.0))
    return judged


def report(settings: LetorSettings, found: Mapping[str, Trials], quick: bool) -> Report:
    judged = [claim for name, of_set in found.items() for claim in claims(name, of_set)]
    return Report(
        name="imputation",
        title=TITLE,
        module="experiments.imputation",
        packages=("tensorflow", "numpy"),
        settings=settings.model_dump(mode="json"),
        results={
            "claims": [asdict(claim) for claim in judged],
            "trials": {name: of_set.to_json() for name, of_set in found.items()},
        },
        body=[
            *how_it_was_made(settings, found, quick),
            "One teacher, trained with true values, ranks the test groups three times: with true values (marked *: "
            "nobody has them when a query arrives), with 0 for each privileged feature, and with its mean over the "
            "training split. Gains are over no-distillation; a claim holds where the whole interval says so.",
            claims_table(judged),
            *ndcg_tables(ROWS, found, PAPER),
        ],
        figure=gain_figure(ROWS, found),
        caption="Gain in NDCG over no-distillation, of the teacher with true and with imputed privileged features",
    )


def main() -> None:
    arguments = parse_arguments("imputation", TITLE)
    settings = load_settings(arguments.config, LetorSettings)
    cells = letor_trials(settings, arguments.out, arguments.quick, CHANGE)
    results = run_cells(cells, run_trial, arguments.out, arguments.processes, VERSION)
    write_report(report(settings, by_set(cells, results), arguments.quick), arguments.out)
    print(f"wrote {arguments.out / 'imputation.md'}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
