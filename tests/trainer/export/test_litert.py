"""The student as LiteRT graphs: its scores, computed at once or from kept states, and the gate that lets it pass."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from features.manifest import Agreement, LiteRtGraphs, litert_file
from inference.kendall_tau import kendall_tau
from inference.litert_engine import Engine
from tests.trainer.rankers import inputs_of, new_ranker, written_litert
from trainer.config import ExportConfig
from trainer.export import litert
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run


class Made(NamedTuple):
    """A ranker, and its LiteRT files."""

    model: Ranker
    graphs: LiteRtGraphs
    directory: Path

    def engine(self, precision: Any = "float") -> Engine:
        return Engine((self.directory / litert_file(precision)).read_bytes(), self.graphs)


@pytest.fixture(scope="module")
def both(run: Run) -> Run:
    """The run, with both precisions asked for."""
    asked = copy.copy(run)
    asked.config = replace(run.config, export=ExportConfig(litert=("float", "int8")))
    return asked


def write(run: Run, directory: Path, split_layers: int) -> Made:
    """The files of a ranker for queries of up to 10 tokens and titles of up to 16, separators included."""
    model = new_ranker(run, split_layers=split_layers, spread=0.1, max_item_tokens=15, max_context_tokens=9)
    graphs, left_out = written_litert(run, model, directory)
    assert graphs is not None
    assert not left_out
    assert (graphs.context_lengths, graphs.item_lengths) == ((8, 10), (8, 12, 16))
    return Made(model, graphs, directory)


@pytest.fixture(scope="module")
def joint(both: Run, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return write(both, tmp_path_factory.mktemp("joint"), split_layers=0)


@pytest.fixture(scope="module")
def split(both: Run, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return write(both, tmp_path_factory.mktemp("split"), split_layers=1)


class Question(NamedTuple):
    """One query's inputs as an engine takes them, and the scores that its ranker gives."""

    context: NDArray[np.int32]
    items: list[NDArray[np.int32]]
    others: dict[str, NDArray[Any]]
    expected: NDArray[np.float32]


def asked(run: Run, made: Made, words: int, lengths: list[int]) -> Question:
    """A query of so many tokens and titles of such lengths, separators included; numbers of a real group, repeated."""
    generator = np.random.default_rng(words)
    context, *items = (
        np.append(generator.integers(4, run.pieces, length - 1), 3).astype(np.int32) for length in (words, *lengths)
    )
    items[0][: min(len(items[0]), words) - 1] = context[: min(len(items[0]), words) - 1]  # shared words
    regular, _, _ = inputs_of(run.train, groups=1)
    others = {name: np.resize(regular[name].numpy()[0], (len(items), *regular[name].shape[2:])) for name in OTHERS}
    titles = np.stack([np.pad(tokens, (0, max(lengths) - len(tokens))) for tokens in items])
    inputs = {"context_tokens": context, "item_tokens": titles, **others}
    batch = {name: values[np.newaxis] for name, values in inputs.items()}
    expected = made.model(batch, {}, np.ones((1, len(items)), bool), training=False).numpy()[0]
    return Question(context, items, others, expected)


OTHERS = ("price", "brand", "picture", "reviews", "in_stock")


@pytest.mark.parametrize("words", [1, 8, 9, 10])
@pytest.mark.parametrize("lengths", [[2], [8] * 16, [1, 16, 9, 2, 12, 8] * 6])
@pytest.mark.parametrize("layers", ["joint", "split"])
def test_float_graphs_score_as_the_student_does(
    run: Run, request: pytest.FixtureRequest, layers: str, words: int, lengths: list[int]
) -> None:
    made: Made = request.getfixturevalue(layers)
    question = asked(run, made, words, lengths)
    scores = made.engine().score(question.context, question.items, question.others)
    assert question.expected.std() > 0.01 or len(lengths) == 1
    np.testing.assert_allclose(scores, question.expected, atol=1e-5)


def test_kept_states_score_as_new_ones_do(run: Run, split: Made) -> None:
    question, engine = asked(run, split, 6, [5, 16, 11] * 7), split.engine()
    kept = {
        tokens.tobytes(): states
        for tokens, states in zip(question.items, engine.item_states(question.items), strict=True)
    }
    shuffled = np.random.default_rng(1).permutation(len(question.items))
    items = [question.items[place] for place in shuffled]
    others = {name: values[shuffled] for name, values in question.others.items()}
    states = engine.context_states(question.context), [kept[tokens.tobytes()] for tokens in items]
    np.testing.assert_allclose(
        engine.score(question.context, items, others, states), question.expected[shuffled], atol=1e-5
    )


def test_an_items_states_know_nothing_of_the_items_around_it(run: Run, split: Made) -> None:
    question, engine = asked(run, split, 6, [5, 16, 11]), split.engine()
    together = engine.item_states(question.items)
    for tokens, states in zip(question.items, together, strict=True):
        assert states.shape == (len(tokens), 16)
        np.testing.assert_allclose(engine.item_states([tokens])[0], states, atol=1e-6)


def test_int8_orders_items_nearly_as_float_does(run: Run, joint: Made) -> None:
    question = asked(run, joint, 6, [5, 16, 11] * 10)
    scores = joint.engine("int8").score(question.context, question.items, question.others)
    assert kendall_tau(scores, question.expected) > 0.9
    assert np.abs(scores - question.expected).max() > 1e-4  # it is int8


def test_states_of_either_side_come_from_8_bit_weights_too(run: Run, split: Made) -> None:
    question, floats, ints = asked(run, split, 6, [16]), split.engine(), split.engine("int8")
    for found, expected in (
        (ints.context_states(question.context), floats.context_states(question.context)),
        (ints.item_states(question.items)[0], floats.item_states(question.items)[0]),
    ):
        assert 1e-5 < np.abs(found - expected).max() < 0.1


def test_the_manifest_says_how_each_precision_agrees(joint: Made) -> None:
    floats = joint.graphs.precisions["float"]
    assert abs(floats.ndcg_change) < 1e-6
    assert floats.kendall_tau > 0.999
    assert floats.largest_difference < 1e-5
    assert joint.graphs.precisions["int8"].largest_difference > 1e-4


GOOD = Agreement(ndcg_change=0.001, kendall_tau=0.99, largest_difference=0.1)


@pytest.mark.parametrize(
    ("precision", "change", "passes"),
    [
        ("int8", {}, True),
        ("int8", {"ndcg_change": -0.0021}, False),
        ("int8", {"ndcg_change": 0.0021}, False),
        ("int8", {"kendall_tau": 0.94}, False),
        ("float", {}, False),
        ("float", {"largest_difference": 1e-5}, True),
    ],
)
def test_the_gate_lets_pass_what_agrees(precision: Any, change: dict[str, float], passes: bool) -> None:
    assert (litert.rejection_reason(precision, GOOD.model_copy(update=change), ExportConfig()) is None) == passes


def test_a_precision_that_does_not_agree_is_left_out(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # no int8 orders all items as floats do
    strict = ExportConfig(litert=("float", "int8"), largest_ndcg_change=1.0, least_kendall_tau=1.0)
    asked = copy.copy(run)
    asked.config = replace(run.config, export=strict)
    graphs, left_out = written_litert(
        asked, new_ranker(run, layers=2, max_item_tokens=7, max_context_tokens=7), tmp_path
    )
    assert graphs is not None
    assert set(graphs.precisions) == {"float"}
    assert set(left_out) == {"int8"}
    assert (tmp_path / litert_file("float")).exists()
    assert not (tmp_path / litert_file("int8")).exists()
    assert "int8: NDCG" in (told := capsys.readouterr().out)
    assert f"left out, {left_out['int8']}" in told
    assert left_out["int8"].endswith(", below 1.0")


def test_a_conversion_that_fails_is_told_and_leaves_the_other_precision(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = copy.copy(run)
    asked.config = replace(run.config, export=ExportConfig(litert=("int8", "float")))
    monkeypatch.setattr(litert, "_BLOCK_PREFIX", "[")  # no regular expression: the quantizer's own error
    model = new_ranker(run, layers=2, max_item_tokens=7, max_context_tokens=7)
    graphs, left_out = written_litert(asked, model, tmp_path)
    assert graphs is not None
    assert set(graphs.precisions) == {"float"}
    assert not (tmp_path / litert_file("int8")).exists()
    assert left_out["int8"].startswith("its conversion failed: ")
    assert "\n" not in left_out["int8"]
    assert f"LiteRT int8: left out, {left_out['int8']}" in capsys.readouterr().out
    assert model.encoder.batched_heads is False


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layers": 0}, "the student has no transformer"),
        ({"interaction": {"layers": 1, "heads": 1, "width": 4}}, "its items are scored together"),
    ],
)
def test_a_student_that_is_none_for_litert_is_said_so(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], reason: str
) -> None:
    graphs, left_out = written_litert(run, new_ranker(run, **changes), tmp_path)
    assert graphs is None
    assert list(left_out) == ["float"]
    assert reason in left_out["float"]
    assert reason in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_graph_that_takes_something_else_is_refused(joint: Made) -> None:
    content = (joint.directory / litert_file("float")).read_bytes()
    without = joint.graphs.model_copy(
        update={"features": {k: v for k, v in joint.graphs.features.items() if k != "price"}}
    )
    with pytest.raises(ValueError, match="'price'"):
        Engine(content, without)
    with pytest.raises(ValueError, match="buffer"):
        Engine(content[: len(content) // 2], joint.graphs)
