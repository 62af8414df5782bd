"""Writes report.html: the table, the bar chart with intervals and the learning curves of a run, in one file."""

import base64
import io
from typing import Any

import jinja2
import yaml
from matplotlib.figure import Figure

from trainer.evaluation.summary import display_name, gain_line, metric_columns, sorted_models, table_lines
from trainer.pipeline.run import Run, load_history
from trainer.pipeline.students import student_directory
from trainer.pipeline.teachers import teacher_directory
from trainer.storage.stages import write_file
from trainer.training.fit_ranker import History

_COLOURS_BY_KIND = {"reference": "#9aa5b1", "teacher": "#d9a441", "imputed": "#e8cf9c", "student": "#2f6fb3"}

_PAGE = jinja2.Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ task }}: report</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;
padding:0 1rem;color:#1d2733}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.3rem .8rem;border-bottom:1px solid #d8dee4;text-align:left}
img{max-width:100%}.gain{font-size:1.2rem;font-weight:600}
pre{background:#f4f6f8;padding:1rem;overflow:auto}</style>
<h1>{{ task }}</h1>
<p class="gain">{{ gain }}</p>
<table><tr>{% for cell in head %}<th>{{ cell }}{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}{% endfor %}</tr>
{% endfor %}</table>
<p>{{ note }}</p>
<h2>Compared</h2><img alt="Bar chart of every model's NDCG with its interval" src="data:image/png;base64,{{ chart }}">
<h2>Learning curves</h2><img alt="Validation NDCG and training loss by step" src="data:image/png;base64,{{ curves }}">
<h2>Task file as resolved</h2><pre>{{ config }}</pre>
</html>"""
)


def write_report(run: Run, metrics: dict[str, Any]) -> None:
    """Writes report.html beside metrics.json."""
    histories = {f"teacher: {t.name}": load_history(teacher_directory(run, t)) for t in run.config.teachers.values()}
    trained = [recipe for recipe in run.config.recipes.values() if not recipe.averages]
    histories |= {recipe.name: load_history(student_directory(run, recipe)) for recipe in trained}
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table_lines(metrics) if line.startswith("| ")
    ]
    page = _PAGE.render(
        task=run.config.name,
        gain=gain_line(metrics),
        head=table[0],
        rows=table[1:],
        note=table_lines(metrics)[-1],
        chart=_png(bar_chart(metrics)),
        curves=_png(learning_curves(histories)),
        config=yaml.safe_dump(run.config.resolved, sort_keys=False),
    )
    write_file(f"{run.workdir}/report.html", page.encode())


def bar_chart(metrics: dict[str, Any]) -> Figure:
    """Every model's first metric with its interval, coloured by kind."""
    column = metric_columns(metrics)[0]
    rows = sorted_models(metrics)[::-1]
    figure = Figure(figsize=(8.5, 0.38 * len(rows) + 1.4))
    axes = figure.subplots()
    values = [model[column] for _, model in rows]
    # a perfect model's mean and quantiles may differ in their last digit, either way
    errors = [[max(v["value"] - v["low"], 0.0) for v in values], [max(v["high"] - v["value"], 0.0) for v in values]]
    colours = [_COLOURS_BY_KIND[model["kind"]] for _, model in rows]
    axes.barh(
        [display_name(*row) for row in rows],
        [v["value"] for v in values],
        xerr=errors,
        color=colours,
        capsize=3,
        height=0.7,
    )
    for index, (_, model) in enumerate(rows):
        gain = model[column].get("gain")
        text = f"  {model[column]['value']:.3f}" + (f"  ({gain['value']:+.1%})" if gain else "")
        axes.text(model[column]["high"], index, text, va="center", fontsize=9)
    axes.set_xlim(0.0, min(1.15, max(v["high"] for v in values) * 1.25))
    groups = f"{metrics['positive_test_groups']:,} test groups, {metrics['confidence']:.0%} intervals"
    axes.set_xlabel(f"{metrics['label']} {column.upper()} on {groups}")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def learning_curves(histories: dict[str, History]) -> Figure:
    """Validation NDCG@8 (the kept step marked) and training loss of every model, by step."""
    figure = Figure(figsize=(11, 4.2))
    left, right = figure.subplots(1, 2)
    for name, history in histories.items():
        (line,) = left.plot(history.steps, history.validation_ndcg, label=name)
        kept = history.steps.index(history.best_step)
        left.plot(history.best_step, history.validation_ndcg[kept], "o", color=line.get_color())
        right.plot(history.steps, history.training_loss, color=line.get_color())
    left.set(xlabel="step", ylabel="validation NDCG@8 (the kept step marked)")
    right.set(xlabel="step", ylabel="training loss, an item's mean", yscale="log")
    left.legend(fontsize=8)
    figure.tight_layout()
    return figure


def save_chart(metrics: dict[str, Any], path: str) -> None:
    """Writes the bar chart as a PNG file."""
    write_file(path, base64.b64decode(_png(bar_chart(metrics))))


def _png(figure: Figure) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return base64.b64encode(content.getvalue()).decode()
