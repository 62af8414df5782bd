"""The trainer's sections of a task file, typed and frozen."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from features.errors import InputError
from features.manifest import Precision
from features.spec import FeatureSpec, load_spec
from features.task import Section, load_task, parse, parse_section, task_name
from trainer.architecture import StudentConfig, overridden
from trainer.ignored_settings import (
    model_inputs,
    refuse_run_settings,
    refuse_token_limits,
    refuse_unused_architecture,
    refuse_unused_layers,
    refuse_unused_noise,
)
from trainer.recipes import PROBABILITY_LOSSES, LossName, Recipe, TeacherConfig, weighable

Stemming = Literal[
    "none", "danish", "dutch", "english", "french", "german", "italian", "portuguese", "spanish", "swedish"
]
MetricName = Literal["ndcg", "precision", "recall"]  # the keys of trainer.evaluation.metrics.TOP_K_METRICS


class TrainingConfig(Section):
    """How one model is trained. A step is one batch."""

    loss: LossName = "rank_bce"
    batch_groups: int = Field(default=32, ge=1)  # query groups a step, over all devices
    steps: int = Field(default=2000, ge=1)  # the budget; validation selects the step that is kept
    evaluate_every: int = Field(default=100, ge=1)  # steps between validations
    patience: int = Field(default=10, ge=1)  # validations without improvement before early stopping
    select_by: Literal["ndcg", "loss"] = "ndcg"  # of that split's positive groups
    select_on: Literal["valid", "test"] = "valid"  # test: as in Yang et al.; biased, and fit warns
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)  # share of states and hidden units dropped while training
    input_noise: float = Field(default=0.0, ge=0.0)  # deviation of noise added to scaled numbers while training
    learning_rate: float = Field(default=1e-3, gt=0.0)  # Adam's peak
    warmup_steps: int = Field(default=100, ge=0)  # linear from zero
    halve_every: int = Field(default=0, ge=0)  # steps after which the rate halves; 0: cosine to a tenth at `steps`
    weight_decay: float = Field(default=0.01, ge=0.0)  # decoupled; of kernels, see `Ranker.decayed`; so is l2
    l2: float = Field(default=0.0, ge=0.0)  # of half the weights' squared length, added to the loss
    clip_norm: float = Field(default=1.0, gt=0.0)  # global gradient norm
    averaging: float = Field(default=0.99, ge=0.0, lt=1.0)  # momentum of the weights' running average; 0: the last
    group_weight: str | None = None  # a numeric context feature that weighs its group's losses; None: all 1
    cache: Literal["memory", "none"] = "memory"  # tokenised groups: kept, or read again each epoch
    devices: Literal["auto", "cpu", "gpu", "all_gpus"] = "auto"  # auto: every GPU that TensorFlow finds, else CPU
    precision: Literal["float32", "mixed_bfloat16"] = "float32"


class EvaluationConfig(Section):
    """What is measured on the test split, and how it is compared."""

    impute: tuple[Literal["zero", "mean"], ...] = ()  # also evaluate teachers with privileged values imputed
    metrics: tuple[MetricName, ...] = ("ndcg",)  # each at every cutoff; tables and gains use NDCG
    # the k of NDCG@k and so on; the first is the main one
    cutoffs: tuple[int, ...] = Field(default=(8, 16, 32), min_length=1)
    baseline: str = "no_distillation"  # the recipe that others are compared with
    stemming: Stemming = "english"  # of BM25's words, by the Snowball stemmer of that language
    bootstrap_samples: int = Field(default=2000, ge=100)
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)

    @model_validator(mode="after")
    def _consistent(self) -> "EvaluationConfig":
        if self.metrics[:1] != ("ndcg",):
            raise ValueError(f"metrics {list(self.metrics)} must begin with ndcg, by which tables and gains go")
        return self


class ExportConfig(Section):
    """Which model is exported, and how."""

    recipe: str = "student"
    litert: tuple[Precision, ...] = ("float", "int8")  # LiteRT files beside the SavedModel, each if it agrees with it:
    largest_ndcg_change: float = Field(default=0.002, ge=0.0)  # on the validation split, as a share
    least_kendall_tau: float = Field(default=0.95, ge=-1.0, le=1.0)  # a mean over its positive groups


@dataclass(frozen=True)
class TrainerConfig:
    """Everything that `fit` needs; `resolved` is the task file with its `extends` merged."""

    name: str
    seed: int
    spec: FeatureSpec
    student: StudentConfig
    training: TrainingConfig
    teachers: dict[str, TeacherConfig]
    teacher_architecture: dict[str, StudentConfig]  # by teacher: `student` with the teachers' and its own overrides
    teacher_training: dict[str, TrainingConfig]  # by teacher: `training` with the teachers' and its own overrides
    recipes: dict[str, Recipe]
    recipe_architecture: dict[str, StudentConfig]  # by recipe: `student` with the recipe's overrides
    recipe_training: dict[str, TrainingConfig]  # by recipe: `training` with the recipe's overrides
    evaluation: EvaluationConfig
    export: ExportConfig
    resolved: dict[str, Any]

    @property
    def pretrained(self) -> tuple[str, ...]:
        """The directories of pretrained encoders that students and teachers start from, each once."""
        architectures = (self.student, *self.recipe_architecture.values(), *self.teacher_architecture.values())
        return tuple(dict.fromkeys(a.pretrained for a in architectures if a.pretrained is not None))

    @property
    def trainings(self) -> dict[str, TrainingConfig]:
        """Training config of every model, by its place in the task file."""
        of_recipes = {f"recipes: {name!r}": training for name, training in self.recipe_training.items()}
        return {**{f"teachers: {name!r}": training for name, training in self.teacher_training.items()}, **of_recipes}


def load_config(path: str) -> TrainerConfig:
    """Reads and checks a task file. Errors: InputError naming the value, the expectation and the remedy."""
    task = load_task(path)
    student, training = overridden({}, _mapping(task, "student")), _mapping(task, "training")
    teachers, recipes = _by_name(task, "teachers", TeacherConfig), _by_name(task, "recipes", Recipe)
    # a teacher has the student's settings, overridden by the teachers' section and by its own
    teacher_architecture = overridden(student, _mapping(task, "teacher_architecture"))
    teacher_training = {**training, **_mapping(task, "teacher_training")}
    config = TrainerConfig(
        name=task_name(task),
        seed=_seed(task),
        spec=load_spec(task),
        student=parse(student, "student", StudentConfig),
        training=parse(training, "training", TrainingConfig),
        teachers=teachers,
        teacher_architecture=_architectures("teachers", teacher_architecture, teachers),
        teacher_training=_trainings("teachers", teacher_training, teachers),
        recipes=recipes,
        recipe_architecture=_architectures("recipes", student, recipes),
        recipe_training=_trainings("recipes", training, recipes),
        evaluation=parse_section(task, "evaluation", EvaluationConfig),
        export=parse_section(task, "export", ExportConfig),
        resolved=task,
    )
    _check_teachers(config)
    _check_recipes(config)
    _check_ignored(config, task)
    for where, model_training in config.trainings.items():
        _check_weight(config.spec, where, model_training.group_weight)
    return config


def _architectures(section: str, base: dict[str, Any], entries: dict[str, Any]) -> dict[str, StudentConfig]:
    """The architecture of each entry: `base` with its own overrides. Errors: InputError."""
    return {
        name: parse(overridden(base, entry.architecture), f"{section}.{name}.architecture", StudentConfig)
        for name, entry in entries.items()
    }


def _trainings(section: str, base: dict[str, Any], entries: dict[str, Any]) -> dict[str, TrainingConfig]:
    """The training of each entry: `base` with its own overrides. Errors: InputError."""
    return {
        name: parse({**base, **entry.training}, f"{section}.{name}.training", TrainingConfig)
        for name, entry in entries.items()
    }


def _seed(task: dict[str, Any]) -> int:
    seed = task.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InputError(f"seed is {seed!r}, expected an integer at the top of the task file")
    return seed


def _mapping(task: dict[str, Any], section: str) -> dict[str, Any]:
    content = task.get(section) or {}
    if not isinstance(content, dict):
        raise InputError(f"{section} is {content!r}, expected a mapping; see configs/product_search.yaml")
    return content


def _by_name(task: dict[str, Any], section: str, model: type[Any]) -> dict[str, Any]:
    entries = task.get(section, [])
    if not isinstance(entries, list):
        raise InputError(f"{section} is {entries!r}, expected a list of mappings, each with a name")
    named = {}
    for index, entry in enumerate(entries):
        parsed = parse(entry, f"{section}.{index}", model)
        if parsed.name in named:
            raise InputError(f"{section}.{index}.name is {parsed.name!r}, which an earlier entry has: rename one")
        named[parsed.name] = parsed
    return named


def _check_teachers(config: TrainerConfig) -> None:
    privileged = {feature.name: feature for feature in config.spec.privileged}
    for teacher in config.teachers.values():
        for name in teacher.sees:
            if name not in privileged:
                role = config.spec[name].role if name in config.spec else "unknown"
                raise InputError(
                    f"teachers: {teacher.name!r} sees {name!r}, which is {role}; expected privileged features only "
                    f"({', '.join(privileged) or 'none in this spec'}): a teacher sees the regular ones anyway"
                )
            if privileged[name].is_text:
                raise InputError(f"teachers: {teacher.name!r} sees {name!r}, a text; expected a number or category")
        if not teacher.sees and not teacher.sees_regular:
            raise InputError(f"teachers: {teacher.name!r} sees nothing: name privileged features in `sees`")


def _check_recipes(config: TrainerConfig) -> None:
    if not config.recipes:
        raise InputError("recipes is empty, expected at least one, such as {name: no_distillation}")
    earlier: list[str] = []
    privileged = {f.name for f in config.spec.privileged if f.level == "item" and f.type == "bool" and f.length == 1}
    learnable = {config.spec.label.name, *privileged}
    for recipe in config.recipes.values():
        for teacher in recipe.teachers:
            if teacher not in config.teachers:
                raise InputError(
                    f"recipes: {recipe.name!r} names the unknown teacher {teacher!r}, "
                    f"expected one of {', '.join(config.teachers) or 'teachers, which is empty: name some there'}"
                )
        _check_earlier(config, recipe, earlier)
        if recipe.learns is not None and recipe.learns not in learnable:
            raise InputError(
                f"recipes: {recipe.name!r} learns {recipe.learns!r}, expected one of {', '.join(sorted(learnable))}"
            )
        earlier.append(recipe.name)
        _check_targets(recipe, recipe.teacher_loss or config.recipe_training[recipe.name].loss)
    for where, name in (("evaluation.baseline", config.evaluation.baseline), ("export.recipe", config.export.recipe)):
        if name not in config.recipes:
            raise InputError(f"{where} is {name!r}, expected one of the recipes: {', '.join(config.recipes)}")
    if config.recipes[config.export.recipe].averages:
        raise InputError(f"export.recipe is {config.export.recipe!r}, an average of several: name a single model")


def _check_earlier(config: TrainerConfig, recipe: Recipe, earlier: list[str]) -> None:
    """Errors: InputError for a recipe that builds on one that is not before it, or whose weights do not fit."""
    for what, name in (("starts from", recipe.starts_from), *(("averages", name) for name in recipe.averages)):
        if name is not None and name not in earlier:
            raise InputError(
                f"recipes: {recipe.name!r} {what} {name!r}, "
                f"expected an earlier recipe: {', '.join(earlier) or 'none is before it'}"
            )
        if name is not None and config.recipes[name].averages and what == "starts from":
            raise InputError(f"recipes: {recipe.name!r} starts from {name!r}, which only averages others")
    start = recipe.starts_from
    if start and config.recipe_architecture[start] != config.recipe_architecture[recipe.name]:
        raise InputError(
            f"recipes: {recipe.name!r} starts from {start!r}, which has another architecture, expected its own: "
            "give both the same `architecture`"
        )


def _check_ignored(config: TrainerConfig, task: dict[str, Any]) -> None:
    """Errors: InputError for a setting that has no effect."""
    regular = model_inputs(config.spec)
    refuse_run_settings("teacher_training", _mapping(task, "teacher_training"))
    refuse_token_limits("teacher_architecture", _mapping(task, "teacher_architecture"))
    refuse_unused_layers("student", config.student.layers, config.student.split_layers, regular)
    for teacher in config.teachers.values():
        where, inputs = f"teachers: {teacher.name!r}", model_inputs(config.spec, teacher)
        refuse_run_settings(f"{where} training", teacher.training)
        refuse_token_limits(f"{where} architecture", teacher.architecture)
        architecture = config.teacher_architecture[teacher.name]
        refuse_unused_architecture(f"{where} architecture", teacher.architecture, architecture.layers, inputs)
        refuse_unused_noise(where, config.teacher_training[teacher.name].input_noise, inputs)
    for recipe in config.recipes.values():
        where, layers = f"recipes: {recipe.name!r}", config.recipe_architecture[recipe.name].layers
        refuse_run_settings(f"{where} training", recipe.training)
        refuse_token_limits(f"{where} architecture", recipe.architecture)
        refuse_unused_architecture(f"{where} architecture", recipe.architecture, layers, regular)
        if not recipe.averages:
            refuse_unused_noise(where, config.recipe_training[recipe.name].input_noise, regular)
    if config.evaluation.impute and not any(teacher.sees for teacher in config.teachers.values()):
        raise InputError(
            f"evaluation.impute is {list(config.evaluation.impute)}, expected none: no teacher sees a privileged "
            "feature whose values could be replaced. Write `impute: []`"
        )


def _check_targets(recipe: Recipe, teacher_loss: LossName) -> None:
    transform = recipe.targets.transform
    if recipe.teachers and transform in ("affine", "score") and teacher_loss in PROBABILITY_LOSSES:
        raise InputError(
            f"recipes: {recipe.name!r} gives {teacher_loss} labels by the transform {transform!r}, which may lie "
            "outside 0 to 1: expected `probability` or `softmax`, or another teacher_loss, such as softmax or mse"
        )


def _check_weight(spec: FeatureSpec, where: str, weight: str | None) -> None:
    weights = [feature.name for feature in weighable(spec)]
    if weight is not None and weight not in weights:
        raise InputError(
            f"{where} has group_weight {weight!r}, expected a number of the context: "
            f"{', '.join(weights) or 'this spec has none'}"
        )
