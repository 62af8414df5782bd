"""Scores of the test groups: the references, every teacher, and every recipe's student."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from trainer.data.batches import InMemoryBatches
from trainer.evaluation.bm25 import GRID, Bm25, Bm25Settings
from trainer.evaluation.metrics import Floats, ndcg
from trainer.models.ranker import Ranker
from trainer.pipeline.query_groups import QueryGroups, distinct_titles, read_groups
from trainer.pipeline.run import Run
from trainer.pipeline.students import trained_student
from trainer.pipeline.teachers import trained_teacher
from trainer.training.fit_ranker import score_batches

Kind = Literal["reference", "teacher", "imputed", "student"]
BM25, LOGGED_ORDER, ZERO_SHOT, SUM = "bm25", "logged_order", "zero_shot_cosine", "bm25_plus_cosine"


class ModelScores(NamedTuple):
    """A model's scores of the test groups, [groups, items], 0 on padding."""

    kind: Kind
    scores: Floats


class Tuned(NamedTuple):
    """The settings that a reference was given, and the number of trials that chose them."""

    settings: Bm25Settings
    trials: int


def score_test_groups(
    run: Run, groups: QueryGroups, batches: InMemoryBatches, relevance: Floats | None
) -> tuple[dict[str, ModelScores], Tuned | None]:
    """Every model's scores, by its name, and how BM25 was tuned.

    groups, batches: the same test groups, as texts and as the rankers' inputs. relevance: [groups, items], if known.
    """
    references: dict[str, Floats] = {}
    bm25, tuned = _bm25_scores(run, groups)
    if groups.positions is not None:
        references[LOGGED_ORDER] = -groups.positions
    if bm25 is not None:
        references[BM25] = bm25
    references |= _zero_shot_scores(run, groups, batches)
    if bm25 is not None and ZERO_SHOT in references:
        references[SUM] = sum((_standardised(s, groups) for s in (bm25, references[ZERO_SHOT])), np.zeros(bm25.shape))
    if relevance is not None:
        references["oracle"] = relevance
    scores = {name: ModelScores("reference", values) for name, values in references.items()}
    for teacher in run.config.teachers.values():
        model = trained_teacher(run, teacher)
        scores[f"teacher_{teacher.name}"] = ModelScores("teacher", _scores(model, groups, batches))
    for teacher in run.config.teachers.values():
        for way in run.config.evaluation.impute if teacher.sees else ():
            imputed = batches.map(_imputing(run, way))
            values = _scores(trained_teacher(run, teacher), groups, imputed)
            scores[f"teacher_{teacher.name}_imputed_{way}"] = ModelScores("imputed", values)
    for recipe in run.config.recipes.values():
        if recipe.averages:
            values = np.mean([scores[name].scores for name in recipe.averages], axis=0)
        else:
            values = _scores(trained_student(run, recipe), groups, batches)
        scores[recipe.name] = ModelScores("student", values)
    return scores, tuned


def _bm25_scores(run: Run, groups: QueryGroups) -> tuple[Floats | None, Tuned | None]:
    """BM25's scores, with the settings that rank the validation split's positive groups best.

    None where query or item has no text. Document frequencies are those of all titles of the three splits: a shop knows
    its catalogue before a query comes.
    """
    if {f.level for f in run.config.spec.regular if f.is_text} != {"context", "item"}:
        return None, None
    catalogue: set[str] = set().union(*(distinct_titles(run, split) for split in ("train", "valid", "test")))
    bm25 = Bm25(sorted(catalogue), run.config.evaluation.stemming)
    valid = read_groups(run, "valid")
    valid = valid.where(valid.positive)
    cutoff = run.config.evaluation.cutoffs[0]

    def judge(settings: Bm25Settings) -> float:
        scores = valid.padded(bm25.scores(valid.queries, valid.titles, settings))
        return float(ndcg(valid.labels, scores, valid.mask, cutoff).mean())

    settings = max(GRID, key=judge)
    print(f"  BM25: k1 {settings.k1:g} and b {settings.b:g}, the best of {len(GRID)} on validation", flush=True)
    return groups.padded(bm25.scores(groups.queries, groups.titles, settings)), Tuned(settings, len(GRID))


def _scores(model: Ranker, groups: QueryGroups, batches: InMemoryBatches) -> Floats:
    """A model's scores of the groups, without the columns that pad a batch to its bucket's length."""
    return score_batches(model, batches).scores[:, : groups.mask.shape[1]]


def _zero_shot_scores(run: Run, groups: QueryGroups, batches: InMemoryBatches) -> dict[str, Floats]:
    """Each pretrained encoder's own cosine of query and item, all its layers, before any training on the logs."""
    rankers = run.zero_shot_rankers()
    names = [ZERO_SHOT, *(f"{ZERO_SHOT}_{number}" for number in range(2, len(rankers) + 1))]
    return {name: _scores(model, groups, batches) for name, model in zip(names, rankers, strict=False)}


def _imputing(run: Run, way: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Imputes every privileged value of a batch: 0, or the training mean (Yang et al. 2022, Table 6)."""
    return lambda batch: {**batch, "privileged": run.preprocessor.imputed(batch["privileged"], way)}


def _standardised(scores: Floats, groups: QueryGroups) -> Floats:
    """Mean 0 and deviation 1 over all items, so that two rankers' scores can be added."""
    items = scores[groups.mask]
    return np.where(groups.mask, (scores - items.mean()) / max(float(items.std()), 1e-12), 0.0)
