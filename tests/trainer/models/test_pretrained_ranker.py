"""Rankers over a pretrained encoder: they start as the encoder ranks, train what is not frozen, and export."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from features.errors import InputError
from features.manifest import litert_file
from inference.litert_engine import Engine
from tests.trainer.data.test_bert_tokeniser import reference
from tests.trainer.models.bert_reference import ReferenceBert
from tests.trainer.rankers import inputs_of, lively, written_litert
from tests.trainer.shop import write_shop, write_task
from trainer.config import TrainerConfig, load_config
from trainer.data.batches import with_label
from trainer.models.ranker import Ranker
from trainer.pipeline.inputs import DataPaths
from trainer.pipeline.run import Run
from trainer.training.fit_ranker import score

FORMS: dict[str, dict[str, Any]] = {
    "cross-encoder": {"freeze": 1},
    "late interaction": {"split_layers": 3, "freeze": 1},
    "late interaction with a joint layer": {"split_layers": 2, "freeze": 2},
}
EXPORT = {"litert": ["float", "int8"], "largest_ndcg_change": 0.02}  # a tiny encoder is rounded more than a large one
HEAD: dict[str, Any] = {"hidden": [16], "max_item_tokens": 7, "max_context_tokens": 7}  # one LiteRT graph of each kind


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny shop."""
    folder = tmp_path_factory.mktemp("pretrained_shop")
    write_shop(folder)
    return folder


def task(root: Path, tiny: Path, **sections: Any) -> TrainerConfig:
    """A config over the shop whose student starts from the tiny encoder; sections replace others."""
    student = {"pretrained": str(tiny), **HEAD, **sections.pop("student", {})}
    architecture = {"teacher_architecture": {"pretrained": None, "layers": 0}}
    return load_config(str(write_task(root, student=student, **{**architecture, **sections})))


def new_run(root: Path, tiny: Path, **sections: Any) -> Run:
    data = DataPaths(str(root / "dataset"), None, str(root / "relevance.tsv"))
    return Run(task(root, tiny, **sections), data, str(root / "run"))


@pytest.fixture(scope="module", params=FORMS, ids=list(FORMS))
def run(request: pytest.FixtureRequest, root: Path, tiny: Path) -> Run:
    return new_run(root, tiny, student=FORMS[request.param], export=EXPORT)


def test_an_untrained_late_interaction_ranker_ranks_as_the_encoder_does(root: Path, tiny: Path) -> None:
    run = new_run(root, tiny, student={"split_layers": 3})
    found = score(run.new_ranker(), with_label(run.test.groups, "purchase"))
    bert, cut = ReferenceBert(tiny, heads=4), reference(tiny, True)

    def embedding(text: bytes) -> np.ndarray:
        return bert.embedding(bert.ids(["[CLS]", *cut([text.decode()])[0], "[SEP]"]))

    place = 0
    for raw, counts in run.test.raw(("query", "title")).as_numpy_iterator():
        for query, titles, count in zip(raw["query"], raw["title"], counts, strict=True):
            cosines = np.array([embedding(query) @ embedding(title) for title in titles[:count]])
            np.testing.assert_allclose(found.scores[place, :count], 10.0 * (cosines - 0.5), atol=1e-4)
            place += 1
    assert place == len(found.scores) == 32


def test_a_step_changes_what_is_not_frozen_and_nothing_else(run: Run) -> None:
    model = run.new_ranker()
    lively(model, 0.01)  # a score that starts from the cosine alone gives its head no gradient at first
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.square(model(*inputs_of(run.train), training=True)))
    variables = model.trainable_variables
    gradients = tape.gradient(total, variables)
    assert all(gradient is not None for gradient in gradients)
    frozen = {f"block_{place}" for place in range(run.config.student.freeze)} | {"embeddings"}
    assert not [v.name for v in variables if frozen & set(v.name.split("/"))]
    assert [v.name for v in variables if "block_2" in v.name.split("/")]


def test_weight_decay_reaches_the_kernels_of_trained_layers_alone(run: Run) -> None:
    model = run.new_ranker()
    decayed = {v.ref() for v in model.decayed}
    frozen = run.config.student.freeze
    for place, block in enumerate(model.encoder.blocks):
        kernels = {block.projection.ref(), *(dense.kernel.ref() for dense in (block.mixed, block.inner, block.outer))}
        assert kernels & decayed == (kernels if place >= frozen else set())
        norms = {v.ref() for norm in (block.attention_norm, block.output_norm) for v in norm.variables}
        assert not norms & decayed
    assert not {v.ref() for v in model.encoder.embeddings.variables} & decayed


def test_a_checkpoint_brings_the_trained_weights_back(run: Run, tmp_path: Path) -> None:
    from trainer.pipeline.run import save_ranker
    from trainer.storage.stages import make_stage
    from trainer.training.fit_ranker import History

    model = lively(run.new_ranker(), 0.05)
    directory = str(tmp_path / "student")

    def make(folder: str) -> dict[str, Any]:
        save_ranker(model, History(), folder)
        return {}

    make_stage(directory, "key", make)
    inputs = inputs_of(run.test)
    expected = model(*inputs).numpy()
    np.testing.assert_allclose(run.load_ranker(directory)(*inputs), expected, atol=1e-6)
    assert np.abs(run.new_ranker()(*inputs) - expected).max() > 1e-2


def test_a_teacher_reads_the_encoder_and_its_privileged_features(root: Path, tiny: Path) -> None:
    architecture = {"split_layers": 3}  # the student's encoder, in a form of its own
    teachers = [{"name": "click", "sees": ["click"], "architecture": {"split_layers": 0}}]
    recipes = [{"name": "no_distillation"}, {"name": "student", "teachers": ["click"]}]
    run = new_run(root, tiny, student=architecture, teachers=teachers, teacher_architecture={}, recipes=recipes)
    teacher: Ranker = lively(run.new_ranker(run.config.teachers["click"]), 0.2)
    regular, privileged, mask = inputs_of(run.train)
    before = teacher(regular, privileged, mask).numpy()
    assert np.abs(teacher(regular, {**privileged, "click": 1.0 - privileged["click"]}, mask) - before).max() > 1e-3
    rolled = {**regular, "item_tokens": tf.roll(regular["item_tokens"], 1, axis=0)}
    assert np.abs(teacher(rolled, privileged, mask) - before).max() > 1e-3
    assert type(teacher.encoder).__name__ == "CrossEncoder"
    assert type(run.new_ranker().encoder).__name__ == "LateInteractionEncoder"


@pytest.fixture(scope="module")
def graphs(run: Run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ranker, Any, Path]:
    """A ranker, its LiteRT graphs and their directory."""
    directory = tmp_path_factory.mktemp("litert")
    model = lively(run.new_ranker(), 0.03)
    graphs = written_litert(run, model, directory).graphs
    assert graphs is not None
    return model, graphs, directory


def test_litert_files_of_both_precisions_pass_the_gate(graphs: tuple[Ranker, Any, Path]) -> None:
    precisions = graphs[1].precisions
    assert set(precisions) == {"float", "int8"}
    assert precisions["float"].largest_difference < 1e-4
    assert precisions["int8"].largest_difference > 1e-5  # it is int8


def test_kept_states_score_as_the_student_does(run: Run, graphs: tuple[Ranker, Any, Path]) -> None:
    model, written, directory = graphs
    engine = Engine((directory / litert_file("float")).read_bytes(), written)
    regular, _, mask = inputs_of(run.test)
    expected = model(regular, {}, mask).numpy()
    for group in range(3):
        real = mask[group].numpy()
        context = regular["context_tokens"][group].numpy()
        items = [tokens[tokens > 0] for tokens in regular["item_tokens"][group].numpy()[real]]
        others = {name: regular[name][group].numpy()[real] for name in written.features}
        states = None
        if written.split:
            kept = [engine.item_states([tokens])[0] for tokens in items]
            assert [len(s) for s in kept] == [len(tokens) + 1 for tokens in items]
            states = engine.context_states(context[context > 0]), kept
        scores = engine.score(context[context > 0], items, others, states)
        np.testing.assert_allclose(scores, expected[group][real], atol=1e-4)


@pytest.mark.parametrize(
    ("sections", "complaint"),
    [
        ({"student": {"layers": 2}}, "layers comes with the pretrained encoder: remove it, set it to null"),
        (
            {"teacher_architecture": {"layers": 0}},
            "teachers.position.architecture .*: layers comes with the pretrained",
        ),
        ({"student": {"width": 64}}, "width comes with the pretrained encoder"),
        ({"student": {"keep_layers": [1, 0]}}, r"keep_layers is \[1, 0\], expected .* ascending from 0"),
        ({"student": {"keep_layers": []}}, r"keep_layers is \[\]"),
        ({"student": {"keep_layers": [0, 2], "split_layers": 3}}, "split_layers 3 must be at most 2"),
        ({"student": {"keep_layers": [0], "freeze": 2}}, "freeze 2 must be at most 1"),
        ({"student": {"pretrained": None, "freeze": 1}}, "keep_layers and freeze need `pretrained`"),
        ({"student": {"pretrained": None, "keep_layers": [0]}}, "keep_layers and freeze need `pretrained`"),
    ],
)
def test_settings_that_cannot_apply_together_are_refused(
    root: Path, tiny: Path, sections: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        task(root, tiny, **sections)


def test_null_means_the_encoders_own_size(root: Path, tiny: Path) -> None:
    config = task(root, tiny, student={"layers": None, "width": None, "heads": None, "feed_forward": None})
    assert config.student.pretrained == str(tiny)


def test_a_teacher_may_have_no_encoder_or_another_cut_of_it(root: Path, tiny: Path) -> None:
    student = {"split_layers": 3, "freeze": 2}
    own = [{"name": "click", "sees": ["click"], "architecture": {"pretrained": str(tiny), "keep_layers": [0]}}]
    recipes = [{"name": "no_distillation"}, {"name": "student", "teachers": ["click"]}]
    config = task(root, tiny, student=student, teachers=own, recipes=recipes)
    found = config.teacher_architecture["click"]
    assert (found.keep_layers, found.freeze, found.split_layers) == ((0,), 0, 0)
    assert config.pretrained == (str(tiny),)


def test_a_vocabulary_beside_an_encoders_own_is_refused(root: Path, tiny: Path) -> None:
    data = DataPaths(str(root / "dataset"), str(root / "vocabulary"))
    student = {"pretrained": str(tiny), **HEAD}
    path = write_task(root, student=student, teacher_architecture={"pretrained": None, "layers": 0})
    with pytest.raises(InputError, match=r"--vocabulary is .*, but the pretrained encoder brings its own"):
        Run(load_config(str(path)), data, str(root / "run"))


def test_encoders_with_different_vocabularies_are_refused(root: Path, tiny: Path, tmp_path: Path) -> None:
    from tests.trainer.models.tiny_encoder import VOCABULARY, write_encoder

    write_encoder(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCABULARY[:-1], "other"]) + "\n")
    with pytest.raises(InputError, match="cut texts differently, expected one vocabulary"):
        new_run(root, tiny, teacher_architecture={"pretrained": str(tmp_path)})
