"""The papers' methods as recipes: one small run of many, and what each must have done."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from tests.trainer.shop import FEATURES, NUMBERS, data_of, write_shop, write_task
from trainer.config import load_config
from trainer.data.batches import positive_only, with_label
from trainer.evaluation.metrics import ndcg
from trainer.evaluation.summary import table_lines
from trainer.pipeline.fit import fit
from trainer.pipeline.run import Run
from trainer.pipeline.students import load_student
from trainer.pipeline.teachers import cached_logits, fold_directory, load_teacher
from trainer.training.fit_ranker import score

TEACHERS = [
    {"name": "click", "sees": ["click"]},
    {"name": "generalised", "sees": ["click"], "sees_regular": False},
    {"name": "crossed", "sees": ["position"], "folds": 2},
]
RECIPES: list[dict[str, Any]] = [
    {"name": "no_distillation"},
    {"name": "crossed", "teachers": ["crossed"]},
    {
        "name": "affine_listwise",
        "teachers": ["click"],
        "teacher_loss": "softmax",
        "targets": {"transform": "affine", "slope": 2.0, "offset": 0.5},
        "training": {"loss": "softmax"},
    },
    {"name": "other_seed", "teachers": ["click"], "seed": 1},
    {"name": "one_seed", "teachers": ["click"]},
    {"name": "ensemble", "averages": ["one_seed", "other_seed"]},
    {"name": "top_of_the_list", "teachers": ["click"], "rank_distil": {"loss": "coupled", "top": 3, "places": 2}},
]


@pytest.fixture(scope="module")
def methods(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, Any]]:
    root = tmp_path_factory.mktemp("methods")
    write_shop(root, NUMBERS)
    task = write_task(
        root,
        NUMBERS,
        teachers=TEACHERS,
        recipes=RECIPES,
        student={"layers": 0, "hidden": [8]},
        evaluation={"impute": ["zero", "mean"], "metrics": ["ndcg", "precision", "recall"]},
        export={"recipe": "crossed"},
    )
    config = load_config(str(task))
    data = data_of(root, NUMBERS)
    metrics = fit(config, data, str(root / "run"))
    return Run(config, data, str(root / "run")), metrics


def test_every_recipe_is_trained_and_measured(methods: tuple[Run, dict[str, Any]]) -> None:
    _, metrics = methods
    students = [name for name, model in metrics["models"].items() if model["kind"] == "student"]
    assert students == [recipe["name"] for recipe in RECIPES]
    assert all(0.0 < metrics["models"][name]["ndcg@8"]["value"] <= 1.0 for name in students)


def test_every_metric_is_measured_at_every_cutoff_and_ndcg_makes_the_table(methods: tuple[Run, dict[str, Any]]) -> None:
    run, metrics = methods
    kept = np.load(f"{run.workdir}/metrics_per_group.npz", allow_pickle=False)
    test = positive_only(with_label(run.test.groups, "purchase"))
    scored = score(load_student(run, run.config.recipes["crossed"]), test)
    ranked = np.argsort(np.where(scored.mask, -scored.scores, np.inf), axis=1, kind="stable")
    bought = np.take_along_axis(scored.labels * scored.mask, ranked, axis=1)
    for k in metrics["cutoffs"]:
        found = bought[:, :k].sum(axis=1)
        for name, expected in (("precision", found / k), ("recall", found / bought.sum(axis=1))):
            np.testing.assert_allclose(kept[f"{name}@{k}/crossed"], expected, atol=1e-6)
            assert metrics["models"]["crossed"][f"{name}@{k}"]["value"] == pytest.approx(expected.mean())
            assert 0.0 < metrics["models"]["random_order"][f"{name}@{k}"]["value"] <= 1.0
    assert "NDCG@8" in table_lines(metrics)[0]
    assert "precision" not in table_lines(metrics)[0]


def test_a_generalised_teacher_is_blind_to_regular_features(methods: tuple[Run, dict[str, Any]]) -> None:
    run, _ = methods
    groups = with_label(run.train.groups, "purchase").take(20)

    def other_items(group: dict[str, Any]) -> dict[str, Any]:
        return {**group, "regular": {name: tf.zeros_like(values) for name, values in group["regular"].items()}}

    for name, blind in (("generalised", True), ("click", False)):
        teacher = load_teacher(run, run.config.teachers[name])
        same = np.allclose(score(teacher, groups).scores, score(teacher, groups.map(other_items)).scores, atol=1e-6)
        assert same == blind, name


def test_a_cross_fitted_teacher_never_scores_a_query_it_trained_on(methods: tuple[Run, dict[str, Any]]) -> None:
    run, _ = methods
    teacher = run.config.teachers["crossed"]
    cached = list(cached_logits([f"{run.workdir}/teacher_scores/crossed"]).as_numpy_iterator())
    folds = [int(query) % 2 for query in run.train.groups.map(lambda group: group["query"]).as_numpy_iterator()]
    assert len(cached) == len(folds)
    assert set(folds) == {0, 1}
    labelled = with_label(run.train.groups, "purchase")
    by_fold = [score(run.load_ranker(fold_directory(run, teacher, fold), teacher), labelled) for fold in (0, 1)]
    assert not np.allclose(by_fold[0].scores, by_fold[1].scores, atol=1e-3)
    for index, (logits, fold) in enumerate(zip(cached, folds, strict=True)):
        mask = by_fold[fold].mask[index]
        np.testing.assert_allclose(logits[:, 0], by_fold[fold].scores[index][mask], atol=1e-5)


def test_a_query_lies_in_one_fold(methods: tuple[Run, dict[str, Any]]) -> None:
    run, _ = methods
    hashes = [int(query) for query in run.train.groups.map(lambda group: group["query"]).as_numpy_iterator()]
    texts = [text for raw, _ in run.train.raw(("query", "item_id")).as_numpy_iterator() for text in raw["query"]]
    assert len(set(zip(texts, hashes, strict=True))) == len(set(texts)) == len(set(hashes)) < len(texts)


def test_an_ensemble_ranks_by_its_members_mean_logit(methods: tuple[Run, dict[str, Any]]) -> None:
    run, metrics = methods
    test = positive_only(with_label(run.test.groups, "purchase"))
    members = [score(load_student(run, run.config.recipes[name]), test) for name in ("one_seed", "other_seed")]
    assert not np.allclose(members[0].scores, members[1].scores, atol=1e-3)
    mean = (members[0].scores + members[1].scores) / 2
    expected = ndcg(members[0].labels, mean, members[0].mask, 8).mean()
    assert metrics["models"]["ensemble"]["ndcg@8"]["value"] == pytest.approx(expected, abs=1e-9)


def test_imputed_teachers_see_one_value_for_every_item(methods: tuple[Run, dict[str, Any]]) -> None:
    run, metrics = methods
    click = run.preprocessor.scales["click"]
    teacher = load_teacher(run, run.config.teachers["click"])
    for way, value in (("zero", 0.0), ("mean", click.mean)):

        def as_served(group: dict[str, Any], value: Any = value) -> dict[str, Any]:
            clicks = tf.fill(tf.shape(group["privileged"]["click"]), (float(value) - click.mean) / click.deviation)
            return {**group, "privileged": {**group["privileged"], "click": clicks}}

        scored = score(teacher, positive_only(with_label(run.test.groups, "purchase")).map(as_served))
        expected = ndcg(scored.labels, scored.scores, scored.mask, 8).mean()
        assert metrics["models"][f"teacher_click_imputed_{way}"]["ndcg@8"]["value"] == pytest.approx(expected)
    assert any(line.startswith("| teacher: click, imputed zero ") for line in table_lines(metrics))


@pytest.mark.parametrize(
    ("recipe", "complaint"),
    [
        ({"averages": ["student"], "teachers": ["click"]}, r"averages \['student'\] trains nothing"),
        ({"averages": ["later"]}, "averages 'later', expected an earlier recipe"),
        ({"teacher_loss": "rank_best"}, "teacher_loss"),
        ({"training": {"loss": "rank_best"}}, "rank_best"),
        ({"training": {"group_weight": "price"}}, "group_weight 'price', expected a number of the context"),
        ({"targets": {"transform": "affine", "slope": 0.0}}, "slope"),
        ({"targets": {"transform": "cubic"}}, "transform"),
        ({"teachers": ["click"], "targets": {"transform": "affine"}}, r"rank_bce labels by the transform 'affine'"),
    ],
)
def test_a_recipe_that_cannot_be_trained_is_refused(tmp_path: Path, recipe: dict[str, Any], complaint: str) -> None:
    recipes = [{"name": "student"}, {"name": "no_distillation"}, {"name": "tried", **recipe}]
    with pytest.raises(InputError, match=complaint):
        load_config(str(write_task(tmp_path, recipes=recipes)))


def test_an_average_cannot_be_exported_nor_a_blind_teacher_trained(tmp_path: Path) -> None:
    recipes = [{"name": "no_distillation"}, {"name": "student", "averages": ["no_distillation"]}]
    with pytest.raises(InputError, match=r"export.recipe is 'student', an average of several"):
        load_config(str(write_task(tmp_path, recipes=recipes)))
    teachers = [{"name": "click", "sees": [], "sees_regular": False}, {"name": "position", "sees": ["position"]}]
    with pytest.raises(InputError, match="'click' sees nothing"):
        load_config(str(write_task(tmp_path, teachers=teachers)))


def test_teachers_are_weighed_by_a_number_of_the_context_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="teachers: 'position' has group_weight 'title', expected a number"):
        load_config(str(write_task(tmp_path, teacher_training={"group_weight": "title"})))


def test_graded_labels_are_no_probabilities(tmp_path: Path) -> None:
    features = {**FEATURES, "reviews": {**FEATURES["reviews"], "role": "label"}}
    features["purchase"] = {**FEATURES["purchase"], "role": "privileged"}
    write_shop(tmp_path, features)
    with pytest.raises(InputError, match=r"rank_bce takes labels for probabilities, but 'reviews' goes up to [2-9]"):
        fit(load_config(str(tmp_path / "task.yaml")), data_of(tmp_path, features), str(tmp_path / "run"))
