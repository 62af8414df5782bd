"""RankDistil's losses by hand and against plain numpy, what their minimisers rank first, and what is drawn."""

import math
from collections.abc import Callable
from itertools import permutations
from math import exp, log1p
from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
import yaml
from numpy.typing import NDArray

from features.errors import InputError
from features.task import parse
from trainer.losses.rank_distil import RANK_DISTIL_LOSSES, rank_distil_loss, select_items
from trainer.recipes import RankDistilConfig, settings_of_loss

Floats = NDArray[np.float64]
EACH_LOSS = pytest.mark.parametrize("loss", RANK_DISTIL_LOSSES)
ALL = 10_000  # more than any group's rest: B is the whole rest, so that nothing is drawn


def config(loss: str, **changes: Any) -> RankDistilConfig:
    used = {name: value for name, value in changes.items() if name in settings_of_loss(loss)}
    return parse({"loss": loss, "top": 2, "sampled": ALL, "mined": 2, **used}, "rank_distil", RankDistilConfig)


def loss_of(teacher: object, scores: object, chosen: RankDistilConfig, mask: object = None) -> list[float]:
    mask = np.ones(np.shape(scores), bool) if mask is None else mask
    teacher, scores = tf.constant(teacher, tf.float32), tf.constant(scores, tf.float32)
    return rank_distil_loss(teacher, scores, tf.constant(mask), chosen).numpy().tolist()


def looped(steps: int, loss_of_step: Callable[[], tf.Tensor]) -> list[float]:
    """The losses of several steps in one call into a graph, as training makes them."""

    def one_more(step: tf.Tensor, losses: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return step + 1, losses.write(step, tf.reduce_sum(loss_of_step()))

    @tf.function(autograph=False)
    def all_steps() -> tf.Tensor:
        start = (0, tf.TensorArray(tf.float32, steps))
        return tf.while_loop(lambda step, _: step < steps, one_more, start, parallel_iterations=1)[1].stack()

    return all_steps().numpy().tolist()


def descent(scores: tf.Variable, teacher: object, chosen: RankDistilConfig, rate: float) -> Callable[[], tf.Tensor]:
    """One step of gradient descent on free scores of groups without padding; returns the loss before it."""

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = rank_distil_loss(tf.constant(teacher), scores, tf.ones(scores.shape, tf.bool), chosen)
        scores.assign_sub(rate * tape.gradient(loss, scores))
        return loss

    return step


def sigma(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))


# --- by hand: P holds the first two items, N the other two

TEACHER = [[3.0, 1.0, -1.0, -2.0]]
STUDENT = [[1.0, 2.0, 0.5, -3.0]]
# softmax of 3 and 1 over P, against that of the student's 1 and 2
SOFTMAX = sigma(2.0) * log1p(exp(1.0)) + sigma(-2.0) * log1p(exp(-1.0))


@pytest.mark.parametrize(
    ("loss", "of_top", "of_rest"),
    [
        (
            "binary_sigmoid_logistic",
            sigma(3.0) * log1p(exp(-1.0)) + sigma(-3.0) * log1p(exp(1.0))
            + sigma(1.0) * log1p(exp(-2.0)) + sigma(-1.0) * log1p(exp(2.0)),
            log1p(exp(0.5)) + log1p(exp(-3.0)),
        ),
        ("binary_softmax_logistic", SOFTMAX, log1p(exp(0.5)) + log1p(exp(-3.0))),
        # (3 - 1)^2 + (1 - 2)^2; (2 + 0.5)^2, while 2 - 3 is below 0
        ("binary_regression_hinge", 4.0 + 1.0, 2.5**2),
        # 2 + 0.5 - 1, 2 + 0.5 - 2; 2 - 3 - 1 and 2 - 3 - 2 are below 0
        ("pairwise_softmax_hinge", SOFTMAX, 1.5 + 0.5),
        # the better of P's two has 1, the other 2: 2 + 2 - 1, met as (1, 2) and as (2, 1)
        ("pairwise_hinge_hinge", 2 * 3.0, 1.5 + 0.5),
        ("pairwise_logistic_logistic", 2 * log1p(exp(1.0)), sum(log1p(exp(x)) for x in (-0.5, -1.5, -4.0, -5.0))),
        # the first place by P's two alone, against the softmax of all four of the student's
        ("coupled", math.log(exp(1.0) + exp(2.0) + exp(0.5) + exp(-3.0)) - sigma(2.0) * 1.0 - sigma(-2.0) * 2.0, 0.0),
    ],
)  # fmt: skip
def test_four_items_by_hand(loss: str, of_top: float, of_rest: float) -> None:
    assert loss_of(TEACHER, STUDENT, config(loss, margin=2.0, places=1)) == pytest.approx([of_top + of_rest], rel=1e-6)


@pytest.mark.parametrize("loss", ["pairwise_hinge_hinge", "pairwise_logistic_logistic"])
def test_a_pair_costs_more_in_the_wrong_order_and_alike_where_the_teacher_ties(loss: str) -> None:
    agrees, differs = loss_of([[3.0, 1.0]] * 2, [[2.0, 1.0], [1.0, 2.0]], config(loss))
    assert agrees < differs
    # what is left is the third item, far below both
    tied = loss_of([[1.0, 1.0, 0.0]] * 2, [[9.0, 3.0, -50.0], [3.0, 9.0, -50.0]], config(loss))
    assert tied == pytest.approx([0.0, 0.0], abs=1e-6)


# --- against plain numpy: the paper's sums, written out


def softplus(x: float) -> float:
    return float(np.logaddexp(0.0, x))


def plackett(t: Floats, s: Floats, places: int) -> float:
    total = 0.0
    for order in permutations(range(len(t)), places):
        chance, log_chance, left = 1.0, 0.0, list(range(len(t)))
        for item in order:
            chance *= np.exp(t[item]) / np.exp(t[left]).sum()
            log_chance += s[item] - np.log(np.exp(s[left]).sum())
            left.remove(item)
        total -= chance * log_chance if chance else 0.0
    return total


def written_out(loss: str, t: Floats, s: Floats, n: Floats, gamma: float, places: int, threshold: float) -> float:
    """t, s: the teacher's and the student's logits of P; n: the student's of N."""
    if loss == "coupled":
        everything = np.concatenate([s, n])
        return plackett(np.concatenate([t, np.full(len(n), -threshold)]), everything, min(places, len(everything)))
    both = [(z, i) for z in (-1, 1) for i in range(len(t))]
    pairs = [(z, i, j) for z, i in both for j in range(len(t)) if i != j and z * (t[i] - t[j]) > 0]
    of_top = {
        "sigmoid": sum(sigma(z * t[i]) * softplus(-z * s[i]) for z, i in both),
        "softmax": -float(np.sum(np.exp(t) / np.exp(t).sum() * np.log(np.exp(s) / np.exp(s).sum()))),
        "regression": float(((t - s) ** 2).sum()),
        "hinge": sum(max(0.0, gamma + z * (s[j] - s[i])) for z, i, j in pairs),
        "logistic": sum(softplus(z * (s[j] - s[i])) for z, i, j in pairs),
    }
    of_rest = {
        ("binary", "logistic"): sum(softplus(x) for x in n),
        ("binary", "hinge"): sum(max(0.0, gamma + x) ** 2 for x in n),
        ("pairwise", "hinge"): sum(max(0.0, gamma + x - y) for x in n for y in s),
        ("pairwise", "logistic"): sum(softplus(x - y) for x in n for y in s),
    }
    family, top, rest = loss.split("_")
    return of_top[top] + of_rest[family, rest]


@pytest.mark.parametrize(("loss", "threshold"), [*((loss, math.inf) for loss in RANK_DISTIL_LOSSES), ("coupled", 0.4)])
@pytest.mark.parametrize(("sampled", "mined"), [(ALL, 5), (ALL, 2), (5, 1)])
def test_groups_of_every_size_equal_the_sums_written_out(loss: str, sampled: int, mined: int, threshold: float) -> None:
    generator, sizes = np.random.default_rng(11), range(1, 9)
    teacher, scores = generator.normal(size=(2, len(sizes), 8))
    # padding between the items, as well as behind them, holding what must not count
    mask = np.array([generator.permutation(np.arange(8) < size) for size in sizes])
    sizes_of_parts = {"top": 3, "sampled": sampled, "mined": mined, "places": 3}
    chosen = config(loss, **sizes_of_parts, margin=0.8, teacher_scale=1.7, threshold=threshold)
    found = loss_of(np.where(mask, teacher, 99.0), np.where(mask, scores, np.nan), chosen, mask)
    for group, value in enumerate(found):
        order = sorted(np.flatnonzero(mask[group]), key=lambda i: -teacher[group, i])
        top, rest = order[:3], order[3:]  # B is the whole rest, of at most 5
        t = teacher[group, top] * (1.7 if loss == "coupled" else 1.0)
        n = np.sort(scores[group, rest])[::-1][:mined]
        expected = written_out(loss, t, scores[group, top], n, 0.8, 3, threshold)
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("threshold", [math.inf, 1.0])
def test_drawn_orders_agree_with_all_of_them(threshold: float) -> None:
    teacher, scores = (np.repeat(x, 3000, axis=0) for x in np.random.default_rng(12).normal(size=(2, 1, 6)))
    chosen = {"top": 3, "mined": 3, "places": 3, "threshold": threshold, "teacher_scale": 1.5}
    tf.random.set_seed(4)
    draws = loss_of(teacher, scores, config("coupled", permutations=1, **chosen))
    exact = loss_of(teacher[:1], scores[:1], config("coupled", **chosen))
    assert np.mean(draws) == pytest.approx(exact[0], abs=3 * np.std(draws) / math.sqrt(3000))


# --- gradients, padding, order


@EACH_LOSS
def test_gradient_equals_finite_differences_and_teachers_are_constants(loss: str) -> None:
    generator = np.random.default_rng(4)
    teacher, scores = tf.Variable(generator.normal(size=(2, 6))), 2 * generator.normal(size=(2, 6)).astype(np.float32)
    mask, chosen = tf.constant([[True] * 4 + [False] * 2, [True] * 6]), config(loss, mined=3, threshold=2.0, places=3)
    variable = tf.Variable(scores)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(rank_distil_loss(teacher, variable, mask, chosen))
    to_scores, to_teacher = tape.gradient(total, [variable, teacher])
    assert to_teacher is None
    for index in np.ndindex(2, 6):
        step = np.zeros_like(scores)
        step[index] = 0.01
        up, down = (sum(loss_of(teacher, scores + s, chosen, mask)) for s in (step, -step))
        assert to_scores.numpy()[index] == pytest.approx((up - down) / 0.02, abs=2e-2, rel=1e-3)


@EACH_LOSS
@pytest.mark.parametrize("permutations", [0, 3])
def test_an_all_padded_group_has_no_loss_and_no_gradient(loss: str, permutations: int) -> None:
    scores = tf.Variable([[math.nan, 1.0, math.inf], [0.3, 0.9, -0.2]])
    mask = tf.constant([[False] * 3, [True] * 3])
    with tf.GradientTape() as tape:
        chosen = config(loss, permutations=permutations)
        values = rank_distil_loss(tf.constant([[1.0, 2.0, math.nan], [1.0, 0.0, -1.0]]), scores, mask, chosen)
    gradient = tape.gradient(values, scores).numpy()
    assert values.numpy()[0] == 0.0
    assert values.numpy()[1] > 0.0
    assert gradient[0].tolist() == [0.0] * 3
    assert np.isfinite(gradient).all()


@EACH_LOSS
def test_neither_padding_nor_the_order_of_items_matters(loss: str) -> None:
    teacher, scores = np.random.default_rng(6).normal(size=(2, 1, 7))
    chosen = config(loss, top=3, mined=3, threshold=3.0)
    plain = loss_of(teacher, scores, chosen)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(12)
        wide = [np.hstack([x, np.full((1, 5), junk)])[:, order] for x, junk in ((teacher, 9.0), (scores, 1e9))]
        assert loss_of(*wide, chosen, order[np.newaxis] < 7) == pytest.approx(plain, rel=1e-5)


@EACH_LOSS
def test_half_precision_is_computed_in_float32(loss: str) -> None:
    teacher, scores = tf.constant([[200.0, 1.0, 0.0]], tf.float16), tf.constant([[-200.0, 400.0, 200.0]], tf.float16)
    values = rank_distil_loss(teacher, scores, tf.ones([1, 3], tf.bool), config(loss))
    assert values.dtype == tf.float32
    assert np.isfinite(values.numpy()).all()


# --- the minimisers


def minimised(teacher: list[float], chosen: RankDistilConfig, rate: float = 0.1) -> NDArray[np.float32]:
    """Free scores after gradient descent from the reverse of the teacher's order."""
    scores = tf.Variable([[-0.5 * t for t in teacher]])
    tf.random.set_seed(2)
    looped(1500, descent(scores, [teacher], chosen, rate))
    return scores.numpy()[0]


# the third is above minus the margin of 1 (theorem 7), and above minus the threshold of 4 (theorem 6)
EIGHT = [-1.5, 2.0, -3.0, 0.2, -2.0, 1.0, -0.5, -1.0]
TOP_THREE, OTHERS = [1, 5, 3], [0, 2, 4, 6, 7]
FORMS: list[tuple[str, dict[str, Any]]] = [
    *((loss, {}) for loss in RANK_DISTIL_LOSSES),
    *(("coupled", changes) for changes in (
        {"threshold": math.inf}, {"sampling": "softmax"}, {"permutations": 2}, {"teacher_scale": 2.0, "places": 3}
    )),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "changes"), FORMS)
def test_the_minimiser_has_the_teachers_top_first_and_in_order(loss: str, changes: dict[str, Any]) -> None:
    # two of three drawn of the five others: each is met in time
    chosen = config(loss, **{"top": 3, "sampled": 3, "mined": 2, "threshold": 4.0, **changes})
    assert np.argsort(-minimised(EIGHT, chosen))[:3].tolist() == TOP_THREE


def test_the_coupled_minimiser_is_the_scaled_teacher_with_minus_the_threshold_outside_the_top() -> None:
    # theorem 6; the model knows logits up to a constant
    scores = minimised(EIGHT, config("coupled", top=3, mined=5, threshold=3.0, teacher_scale=2.0, places=2), rate=0.5)
    expected = np.full(8, -3.0)
    expected[TOP_THREE] = [4.0, 2.0, 0.4]
    assert scores - scores.mean() == pytest.approx(expected - expected.mean(), abs=0.02)


def test_the_regression_minimiser_is_the_teacher_with_all_others_below_minus_the_margin() -> None:
    scores = minimised(EIGHT, config("binary_regression_hinge", top=3, mined=5, margin=1.5))
    assert scores[TOP_THREE] == pytest.approx([2.0, 1.0, 0.2], abs=1e-3)
    assert (scores[OTHERS] < -1.5 + 1e-2).all()


@pytest.mark.parametrize(("loss", "changes"), [("binary_regression_hinge", {}), ("coupled", {"threshold": 1.0})])
def test_a_top_that_the_teacher_rates_too_low_is_not_kept_first(loss: str, changes: dict[str, Any]) -> None:
    # what theorems 6 and 7 ask for: the top above minus the threshold, or the margin, which 1 is here for both
    low = [t - 4.0 for t in EIGHT]
    assert np.argsort(-minimised(low, config(loss, top=3, mined=5, **changes)))[0] in OTHERS


# --- what is drawn


def drawn_of_copies(copies: int, teacher: list[float], sampling: str, count: int) -> NDArray[np.bool_]:
    """[copies, items]: which of the items each copy of a group drew; the last item is padding."""
    items = len(teacher)
    scores = tf.tile([[float(i) for i in range(items)]], [copies, 1])  # so that a score says which item it is of
    mask = tf.tile([[True] * (items - 1) + [False]], [copies, 1])
    sizes = config("coupled", sampled=count, mined=count, sampling=sampling, places=1)
    chosen = select_items(tf.tile([teacher], [copies, 1]), scores, mask, sizes)
    assert chosen.in_rest.numpy().all()
    return (chosen.rest.numpy()[..., np.newaxis] == np.arange(items)).any(axis=1)


def expected_shares(sampling: str, count: int, teacher: list[float]) -> Floats:
    """The chance of each item to be among `count` successive draws from the rest, by every order of drawing."""
    rest = sorted(range(len(teacher) - 1), key=lambda i: -teacher[i])[2:]
    weight = {i: exp(teacher[i]) if sampling == "softmax" else 1.0 for i in rest}
    shares = np.zeros(len(teacher))
    for order in permutations(rest, count):
        chance, left = 1.0, sum(weight.values())
        for item in order:
            chance *= weight[item] / left
            left -= weight[item]
        shares[list(order)] += chance
    return shares


@pytest.mark.parametrize("sampling", ["uniform", "softmax"])
@pytest.mark.parametrize("count", [1, 2])
def test_frequencies_of_draws_match_the_distribution(sampling: str, count: int) -> None:
    copies, teacher = 20_000, [0.0, 5.0, 1.0, 9.0, -1.0, 0.5, 7.0]
    tf.random.set_seed(count)
    frequencies = drawn_of_copies(copies, teacher, sampling, count).mean(axis=0)
    shares = expected_shares(sampling, count, teacher)
    assert frequencies[[1, 3, 6]].tolist() == [0.0, 0.0, 0.0]  # the teacher's top two, and padding
    errors = np.sqrt(shares * (1 - shares) / copies)
    assert (np.abs(frequencies - shares) <= 4 * errors).all()


def test_the_hardest_of_the_drawn_are_mined() -> None:
    # of all three others the student's two highest, whatever the teacher says of them
    chosen = select_items(
        tf.constant([[9.0, 8.0, 1.0, 3.0, 2.0]]), tf.constant([[0.0, 7.0, 5.0, -1.0, 6.0]]),
        tf.ones([1, 5], tf.bool), config("coupled"),
    )  # fmt: skip
    found = [part.numpy().tolist() for part in (chosen.teacher, chosen.top, chosen.rest)]
    assert found == [[[9.0, 8.0]], [[0.0, 7.0]], [[6.0, 5.0]]]


# --- in a graph


@EACH_LOSS
def test_groups_of_unknown_size_in_a_loop_in_a_graph_equal_eager(loss: str) -> None:
    generator, chosen = np.random.default_rng(3), config(loss, top=3, mined=2)
    batches = [generator.normal(size=(2, groups, items)) for groups, items in ((2, 9), (1, 1), (3, 4), (4, 0))]
    shapes = tf.TensorSpec([2, None, None], tf.float32)
    iterator = iter(tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=shapes))

    def step() -> tf.Tensor:
        teacher, scores = tf.unstack(next(iterator))
        return rank_distil_loss(teacher, scores, scores < 0.8, chosen)

    eager = [sum(loss_of(teacher, scores, chosen, scores < 0.8)) for teacher, scores in batches]
    assert looped(4, step) == pytest.approx(eager, rel=1e-5)


@pytest.mark.parametrize("changes", [{"sampled": 1, "mined": 1}, {"permutations": 1}])
def test_draws_differ_from_step_to_step_and_repeat_with_the_seed(changes: dict[str, Any]) -> None:
    teacher, start = np.random.default_rng(1).normal(size=(2, 4, 12)).astype(np.float32)

    def losses(seed: int) -> list[float]:
        tf.random.set_seed(seed)
        # so slow a descent that float32 scores do not move: what differs is drawn
        return looped(20, descent(tf.Variable(start), teacher, config("coupled", **changes), rate=1e-12))

    first = losses(1)
    assert len(set(first)) > 10
    assert losses(1) == first
    assert losses(2) != first


# --- configuration


def test_the_registry_holds_the_losses_that_a_task_file_may_name() -> None:
    assert get_args(RankDistilConfig.model_fields["loss"].annotation) == tuple(RANK_DISTIL_LOSSES)


def test_a_task_file_writes_an_infinite_threshold_as_inf() -> None:
    choice = yaml.safe_load("{threshold: .inf}")
    assert config("coupled", **choice) == config("coupled") != config("coupled", threshold=2.5)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"loss": "listwise"}, "is 'listwise': Input should be 'binary_sigmoid_logistic'"),
        ({"sampled": 3, "mined": 4}, "mined 4 must not be above sampled 3"),
        ({"places": 3}, "places 3 must not be above top = 2"),
        ({"places": 5, "threshold": 1.0}, "places 5 must not be above top [+] mined = 4"),
        ({"threshold": 1e9}, "threshold 1e[+]09 must be at most 10000, or .inf"),
        ({"threshold": float("nan")}, "greater than or equal to 0"),
        ({"top": 9, "places": 7}, "7 places for top = 9 items can be filled in more than 100000 ways: lower places"),
        ({"top": 9, "mined": 20, "places": 4, "threshold": 1.0}, "lower places or top or mined, or set permutations"),
        ({"loss": "pairwise_hinge_hinge", "margin": float("inf")}, "finite number"),
    ],
)
def test_a_wrong_choice_is_refused_with_its_remedy(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        config(**{"loss": "coupled", **changes})


def test_drawing_orders_and_other_losses_know_no_bound_of_ways() -> None:
    config("coupled", top=9, places=7, permutations=10)
    config("pairwise_hinge_hinge", top=9, places=7)
