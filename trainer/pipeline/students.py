"""Students: one recipe each, from the plain baseline to several teachers, by equation 1."""

from trainer.data.batches import Groups, positive_only, training_batches, with_label, with_teachers
from trainer.losses.distillation import objective_of
from trainer.models.ranker import Ranker
from trainer.pipeline.run import Run, save_ranker
from trainer.pipeline.teachers import cached_logits, score_training_groups, teacher_key
from trainer.recipes import Recipe
from trainer.storage.stages import make_stage
from trainer.training.fit_ranker import Training
from trainer.training.progress import Progress


def student_directory(run: Run, recipe: Recipe) -> str:
    return f"{run.workdir}/students/{recipe.name}"


def student_key(run: Run, recipe: Recipe) -> str:
    """The stage key of a trained recipe: it includes the keys of its teachers and of the recipe it starts from."""
    teachers = {name: teacher_key(run, run.config.teachers[name]) for name in recipe.teachers}
    earlier = [name for name in (recipe.starts_from, *recipe.averages) if name]
    start = [student_key(run, run.config.recipes[name]) for name in earlier]
    training = run.config.recipe_training[recipe.name].model_dump(mode="json")
    return run.key(recipe=recipe.model_dump(mode="json"), teachers=teachers, start=start, training=training)


def load_student(run: Run, recipe: Recipe) -> Ranker:
    """Loads a trained student."""
    return run.load_ranker(student_directory(run, recipe), recipe=recipe)


def trained_student(run: Run, recipe: Recipe) -> Ranker:
    """The student that this process trained, else the one on disk."""
    return run.trained.get(student_directory(run, recipe)) or load_student(run, recipe)


def train_student(run: Run, recipe: Recipe) -> None:
    """Trains one recipe, unless it is up to date."""
    config = run.config.recipe_training[recipe.name]
    if recipe.averages:
        return

    def make(staging: str) -> dict[str, object]:
        seed = run.config.seed + recipe.seed
        # before `new_ranker` sets the seed: making these may draw random numbers, and reading cached ones does not
        groups, validation = _groups(run, recipe), run.selection_batches(config, recipe.learns)
        start = load_student(run, run.config.recipes[recipe.starts_from]) if recipe.starts_from else None
        model = run.new_ranker(training=config, seed=seed, recipe=recipe)
        if start is not None:
            model.set_weights(start.get_weights())
        batches = training_batches(groups, config.batch_groups, seed)
        progress = Progress(recipe.name, config.steps, f"{run.tensorboard}/students/{recipe.name}")
        objective = objective_of(recipe, config.loss)
        history = Training(model, config, objective, run.strategy).train(batches, validation, progress)
        progress.done(history)
        save_ranker(model, history, staging)
        run.trained[student_directory(run, recipe)] = model
        return {"recipe": recipe.model_dump(mode="json"), "best_step": history.best_step}

    make_stage(student_directory(run, recipe), student_key(run, recipe), make)


def _groups(run: Run, recipe: Recipe) -> Groups:
    """The training groups of a recipe: with teachers or `data_loss_groups: all` every group, else the positive ones."""
    weight = run.config.recipe_training[recipe.name].group_weight
    groups = with_label(run.train.groups, recipe.learns or run.config.spec.label.name, weight)
    if recipe.teachers:
        scored = [score_training_groups(run, run.config.teachers[name]) for name in recipe.teachers]
        return run.cached(with_teachers(groups, cached_logits(scored)))
    return groups if recipe.data_loss_groups == "all" else run.cached(positive_only(groups))
