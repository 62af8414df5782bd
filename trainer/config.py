"""The trainer's sections of a task file, typed and frozen."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from features.errors import InputError
from features.manifest import Precision
from features.spec import FeatureSpec, load_spec
from features.task import Section, load_task, parse, parse_section
from trainer.recipes import OF_PROBABILITIES, LossName, Recipe, TeacherConfig, weighable

MetricName = Literal["ndcg", "precision", "recall"]  # the keys of trainer.metrics.TOP_K_METRICS


class DataConfig(Section):
    """Where the trainer's inputs are; `gs://` works wherever a local path does."""

    dataset: str  # a directory that build_elwc wrote
    vocabulary: str | None = None  # a directory that build_vocabulary wrote; not needed without text features
    relevance: str | None = None  # TSV(.gz) of query, item_id, relevance: true relevance, which only evaluation reads


class InteractionConfig(Section):
    """Attention among a query group's items before the score head; see trainer/interaction.py."""

    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=2, ge=1)
    width: int = Field(default=32, ge=1)  # of each head
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)


class StudentConfig(Section):
    """The ranker's architecture, the teachers' too; see trainer/encoders.py and trainer/ranker.py."""

    layers: int = Field(default=2, ge=0, le=48)  # 0: no encoder; of texts the head sees shares of matched tokens
    width: int = Field(default=64, ge=8, le=4096)
    heads: int = Field(default=4, ge=1, le=64)
    feed_forward: int = Field(default=256, ge=8)  # width of a layer's inner projection
    split_layers: int = Field(default=0, ge=0)  # lowest layers in which query and item attend separately
    max_context_tokens: int = Field(default=16, ge=1, le=512)  # WordPiece tokens of the query side
    max_item_tokens: int = Field(default=40, ge=1, le=2048)  # WordPiece tokens of an item's side
    hidden: tuple[int, ...] = (64,)  # widths of the score head's hidden layers; an MLP where a spec has no text
    interaction: InteractionConfig | None = None  # None: each item is scored by itself
    category_width: int = Field(default=8, ge=1)  # width of a categorical feature's embedding

    @model_validator(mode="after")
    def _consistent(self) -> "StudentConfig":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.layers and self.split_layers > self.layers - 1:
            raise ValueError(f"split_layers {self.split_layers} must leave one joint layer of layers {self.layers}")
        return self


class TrainingConfig(Section):
    """How one model is trained. A step is one batch."""

    loss: LossName = "rank_bce"
    batch_groups: int = Field(default=32, ge=1)  # query groups a step, over all devices
    steps: int = Field(default=2000, ge=1)  # the budget; validation chooses which step is kept
    evaluate_every: int = Field(default=100, ge=1)  # steps between validations
    patience: int = Field(default=10, ge=1)  # validations without a better one before stopping early
    select_by: Literal["ndcg", "loss"] = "ndcg"  # of that split's positive groups
    select_on: Literal["valid", "test"] = "valid"  # test: as Yang et al. chose, which flatters; fit says so
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)  # share of states and hidden units dropped while training
    input_noise: float = Field(default=0.0, ge=0.0)  # deviation of noise added to scaled numbers while training
    learning_rate: float = Field(default=1e-3, gt=0.0)  # Adam's peak
    warmup_steps: int = Field(default=100, ge=0)  # linear from zero
    halve_every: int = Field(default=0, ge=0)  # steps after which the rate halves; 0: cosine to a tenth at `steps`
    weight_decay: float = Field(default=0.01, ge=0.0)  # decoupled
    l2: float = Field(default=0.0, ge=0.0)  # of half the weights' squared length, added to the loss
    clip_norm: float = Field(default=1.0, gt=0.0)  # global gradient norm
    averaging: float = Field(default=0.99, ge=0.0, lt=1.0)  # momentum of the weights' running average; 0: the last
    group_weight: str | None = None  # a context number of the spec, which weighs its group's losses; None: all 1
    cache: Literal["memory", "none"] = "memory"  # tokenised groups: kept, or read again each epoch
    devices: Literal["auto", "cpu", "gpu", "all_gpus"] = "auto"  # auto: every GPU that TensorFlow finds, else CPU
    precision: Literal["float32", "mixed_bfloat16"] = "float32"


class EvaluationConfig(Section):
    """What is measured on the test split, and how it is compared."""

    impute: tuple[Literal["zero", "mean"], ...] = ()  # judge teachers served with such values, too: a warning
    metrics: tuple[MetricName, ...] = ("ndcg",)  # each at every cutoff; tables and gains go by NDCG
    cutoffs: tuple[int, ...] = (8, 16, 32)  # the k of NDCG@k and so on; the first decides
    baseline: str = "no_distillation"  # the recipe that others are compared with
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
    data: DataConfig
    student: StudentConfig
    training: TrainingConfig
    teachers: dict[str, TeacherConfig]
    teacher_architecture: dict[str, StudentConfig]  # by teacher: `student` with the teachers' and its own overrides
    teacher_training: dict[str, TrainingConfig]  # by teacher: `training` with the teachers' and its own overrides
    recipes: dict[str, Recipe]
    recipe_training: dict[str, TrainingConfig]  # by recipe: `training` with the recipe's overrides
    evaluation: EvaluationConfig
    export: ExportConfig
    resolved: dict[str, Any]

    @property
    def trainings(self) -> dict[str, TrainingConfig]:
        """How models are trained, by the place in the task file that says so."""
        of_recipes = {f"recipes: {name!r}": training for name, training in self.recipe_training.items()}
        return {**{f"teachers: {name!r}": training for name, training in self.teacher_training.items()}, **of_recipes}


def load_config(path: str) -> TrainerConfig:
    """Reads and checks a task file. Errors: InputError naming the value, the expectation and the remedy."""
    task = load_task(path)
    student, training = _mapping(task, "student"), _mapping(task, "training")
    teachers, recipes = _by_name(task, "teachers", TeacherConfig), _by_name(task, "recipes", Recipe)
    # a teacher is built and trained as the student is, but for what the teachers and it alone override
    teacher_architecture = {**student, **_mapping(task, "teacher_architecture")}
    teacher_training = {**training, **_mapping(task, "teacher_training")}
    config = TrainerConfig(
        name=_scalar(task, "name", str),
        seed=_scalar(task, "seed", int),
        spec=load_spec(task),
        data=parse_section(task, "data", DataConfig),
        student=parse_section(task, "student", StudentConfig),
        training=parse(training, "training", TrainingConfig),
        teachers=teachers,
        teacher_architecture={
            name: parse(
                {**teacher_architecture, **teacher.architecture}, f"teachers.{name}.architecture", StudentConfig
            )
            for name, teacher in teachers.items()
        },
        teacher_training={
            name: parse({**teacher_training, **teacher.training}, f"teachers.{name}.training", TrainingConfig)
            for name, teacher in teachers.items()
        },
        recipes=recipes,
        recipe_training={
            name: parse({**training, **recipe.training}, f"recipes.{name}.training", TrainingConfig)
            for name, recipe in recipes.items()
        },
        evaluation=parse_section(task, "evaluation", EvaluationConfig),
        export=parse_section(task, "export", ExportConfig),
        resolved=task,
    )
    _check_teachers(config)
    _check_recipes(config)
    for where, model_training in config.trainings.items():
        _check_weight(config.spec, where, model_training.group_weight)
    return config


def _scalar(task: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = task.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{name} is {value!r}, expected a {kind.__name__} at the top of the task file")
    return value


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
        for what, name in (("starts from", recipe.starts_from), *(("averages", name) for name in recipe.averages)):
            if name is not None and name not in earlier:
                raise InputError(
                    f"recipes: {recipe.name!r} {what} {name!r}, "
                    f"expected an earlier recipe: {', '.join(earlier) or 'none is before it'}"
                )
            if name is not None and config.recipes[name].averages and what == "starts from":
                raise InputError(f"recipes: {recipe.name!r} starts from {name!r}, which only averages others")
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


def _check_targets(recipe: Recipe, teacher_loss: LossName) -> None:
    transform = recipe.targets.transform
    if recipe.teachers and transform in ("affine", "score") and teacher_loss in OF_PROBABILITIES:
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
