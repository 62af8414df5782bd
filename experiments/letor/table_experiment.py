"""Experiments whose report is one NDCG table a LETOR set, beside the paper's: models of RankBCE and one teacher."""

from collections.abc import Callable, Mapping, Sequence

from experiments.letor.ndcg_tables import BASELINE, CUTOFFS, Published, gain_figure, ndcg_tables
from experiments.letor.sets import LetorSettings, describe_setup, group_by_set, letor_trials, trials_to_json
from experiments.runner.comparison import Trials
from experiments.runner.experiment import Experiment
from experiments.runner.report import Claim, claims_table
from features.task import Task, merged

# the teacher sees the privileged features, too; recipes follow the baseline
ONE_TEACHER: Task = {
    "teachers": [{"name": "privileged", "sees": ["privileged"]}],
    "recipes": [{"name": BASELINE}],
    "training": {"loss": "rank_bce"},
    "evaluation": {"cutoffs": list(CUTOFFS), "baseline": BASELINE},
    "export": {"recipe": BASELINE},
}


def table_experiment(
    *,
    name: str,
    title: str,
    task: Task,
    rows: Mapping[str, str],
    published: Published,
    claims: Callable[[str, Trials], list[Claim]],
    about: Callable[[Mapping[str, Trials]], str],
    caption: str,
) -> Experiment[LetorSettings, Mapping[str, Trials]]:
    """An experiment of ONE_TEACHER and of what `task` changes of it.

    rows, published: as `ndcg_tables` takes them. claims: (set, its trials) -> claims. about: findings -> what a reader
    of the tables must know.
    """

    def body(
        settings: LetorSettings, found: Mapping[str, Trials], judged: Sequence[Claim], quick: bool
    ) -> Sequence[str]:
        setup = describe_setup(settings, found, quick)
        return [*setup, about(found), claims_table(judged), *ndcg_tables(rows, found, published)]

    return Experiment(
        name=name,
        title=title,
        settings=LetorSettings,
        cells=lambda settings, out, quick: letor_trials(settings, out, quick, merged(ONE_TEACHER, task)),
        gather=lambda _, cells, results: group_by_set(cells, results),
        claims=lambda _, found: [claim for name, of_set in found.items() for claim in claims(name, of_set)],
        raw=lambda _, found: trials_to_json(found),
        body=body,
        figure=lambda _, found: gain_figure(rows, found),
        caption=caption,
    )
