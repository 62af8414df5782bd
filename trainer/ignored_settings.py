"""Refuses settings of a task file that would have no effect.

A value that a task may inherit through `extends` is refused only if a neutral value, such as 0, can be written instead;
one in an entry of `teachers:` or `recipes:`, which cannot be inherited, is refused wherever it has no effect.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from features.errors import InputError
from features.spec import Feature, FeatureSpec
from trainer.recipes import TeacherConfig

RUN_SETTINGS = ("cache", "devices", "precision")  # of `training:`; apply to all models of a run
TOKENISER_SETTINGS = ("max_context_tokens", "max_item_tokens")  # texts are tokenised once, for all models
TRANSFORMER_SETTINGS = ("width", "heads", "feed_forward", "split_layers", "pretrained", "keep_layers", "freeze")


def model_inputs(spec: FeatureSpec, teacher: TeacherConfig | None = None) -> tuple[Feature, ...]:
    """The features that a model reads: regular ones, and for a teacher also those of `sees`."""
    regular = spec.regular if teacher is None or teacher.sees_regular else ()
    return (*regular, *(spec[name] for name in teacher.sees)) if teacher else regular


def _reads_item_text(inputs: Iterable[Feature]) -> bool:
    """Whether a model with these inputs reads text of items."""
    return any(feature.is_text and feature.level == "item" for feature in inputs)


def refuse_run_settings(where: str, overrides: Mapping[str, Any]) -> None:
    """Errors: InputError when a teacher's or a recipe's training sets a setting of the whole run."""
    for name in RUN_SETTINGS:
        if name in overrides:
            raise InputError(
                f"{where}.{name} is {overrides[name]!r}, expected {name} in `training:` alone: it holds for all models "
                "of a run. Move it there"
            )


def refuse_token_limits(where: str, architecture: Mapping[str, Any]) -> None:
    """Errors: InputError when a teacher's or a recipe's architecture sets token limits."""
    for name in TOKENISER_SETTINGS:
        if name in architecture:
            raise InputError(
                f"{where}.{name} is {architecture[name]!r}, expected {name} in `student:` alone: texts are tokenised "
                "once, for all models. Move it there"
            )


def refuse_unused_layers(where: str, layers: int, split_layers: int, inputs: Iterable[Feature]) -> None:
    """Errors: InputError for layers without an item text, or for split_layers without layers."""
    if layers and not _reads_item_text(inputs):
        raise InputError(
            f"{where}.layers is {layers}, expected 0: no regular feature of the items is a text, so the model is its "
            "score head alone. Write `layers: 0`"
        )
    if split_layers and not layers:
        raise InputError(
            f"{where}.split_layers is {split_layers}, expected 0 beside `layers: 0`, which has no layer to split"
        )


def refuse_unused_architecture(where: str, own: Mapping[str, Any], layers: int, inputs: Iterable[Feature]) -> None:
    """Errors: InputError when a model's architecture sets a setting that its layers or features do not use.

    own: the model's overrides. layers: with all overrides applied.
    """
    if own.get("layers"):
        refuse_unused_layers(where, layers, 0, inputs)
    for name in TRANSFORMER_SETTINGS:
        if own.get(name) and not (layers and _reads_item_text(inputs)):
            raise InputError(f"{where}.{name} is {own[name]!r}, but the model has no transformer: remove it")
    if "category_width" in own and not any(feature.type == "categorical" for feature in inputs):
        raise InputError(
            f"{where}.category_width is {own['category_width']!r}, but the model sees no category: remove it"
        )


def refuse_unused_noise(where: str, input_noise: float, inputs: Iterable[Feature]) -> None:
    """Errors: InputError for input_noise in a model without numeric inputs."""
    if input_noise and not any(feature.is_numeric for feature in inputs):
        raise InputError(
            f"{where} has training.input_noise {input_noise:g}, expected 0: it is added to numbers, and the model "
            "reads none. Write `input_noise: 0.0`"
        )
