"""The summary printed at the end of a run: a table of all models, and the student's gain."""

from typing import Any

from trainer.evaluation.markdown_table import markdown_table

_DISPLAY_NAMES = {
    "random_order": "random order",
    "bm25": "BM25",
    "logged_order": "logged order",
    "zero_shot_cosine": "zero-shot cosine",
    "bm25_plus_cosine": "BM25 + zero-shot cosine",
    "oracle": "oracle (true relevance)",
}
_KIND_ORDER = {"reference": 0, "teacher": 1, "imputed": 2, "student": 3}


def print_summary(metrics: dict[str, Any]) -> None:
    """Prints the table and the gain line of `metrics`, as `trainer.pipeline.evaluate` returns them."""
    print()
    print("\n".join(table_lines(metrics)))
    print()
    print(gain_line(metrics), flush=True)


def sorted_models(metrics: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(name, model) pairs sorted for display: references, teachers, imputed teachers, students, the oracle last."""
    models = metrics["models"].items()
    return sorted(models, key=lambda row: (row[0] == "oracle", _KIND_ORDER[row[1]["kind"]]))


def metric_columns(metrics: dict[str, Any]) -> list[str]:
    """The metrics of the table: ndcg@k by k, then relevance_ndcg@8 if true relevance is known."""
    columns = [f"ndcg@{cutoff}" for cutoff in metrics["cutoffs"]]
    return columns + [name for name in metrics["models"]["random_order"] if name.startswith("relevance_ndcg")]


def table_lines(metrics: dict[str, Any]) -> list[str]:
    """A Markdown table: purchase and relevance NDCG with intervals, and the paired gains over the baseline."""
    columns = metric_columns(metrics)
    judged = [columns[0], *(name for name in columns if name.startswith("relevance"))]  # with intervals and gains
    heads = [_head(name, metrics["label"]) for name in columns]
    gains = [f"{'relevance ' if name != columns[0] else ''}gain over {metrics['baseline']}" for name in judged]
    rows = []
    for name, model in sorted_models(metrics):
        cells = [_interval(model[c]) if c in judged else f"{model[c]['value']:.3f}" for c in columns]
        gained = [_gain(model[c]["gain"]) if "gain" in model[c] else "" for c in judged]
        rows.append([display_name(name, model), *cells, *gained])
    return [*markdown_table(["model", *heads, *gains], rows).splitlines(), "", _note(metrics)]


def _head(column: str, label: str) -> str:
    return (
        f"{label} {column.upper()}" if column.startswith("ndcg") else column.replace("_", " ").replace("ndcg", "NDCG")
    )


def _note(metrics: dict[str, Any]) -> str:
    """How many groups the figures are means of, what the brackets are, and how BM25 was tuned."""
    parts = [f"{metrics['positive_test_groups']:,} positive test groups of {metrics['test_groups']:,}"]
    if metrics["relevance_test_groups"]:
        parts.append(f"relevance on all {metrics['relevance_test_groups']:,} test groups that have a relevant item")
    parts.append(f"brackets: {metrics['confidence']:.0%} bootstrap intervals")
    if bm25 := metrics["bm25"]:
        parts.append(f"BM25: k1 {bm25['k1']:g} and b {bm25['b']:g}, of {bm25['trials']} tried on validation")
    parts.append("teachers see privileged features, so cannot serve.")
    return "; ".join(parts)


def display_name(name: str, model: dict[str, Any]) -> str:
    if model["kind"] in ("teacher", "imputed"):
        return f"teacher: {name.removeprefix('teacher_').replace('_imputed_', ', imputed ')}"
    return _DISPLAY_NAMES.get(name, name)


def gain_line(metrics: dict[str, Any]) -> str:
    """`student gain: +11.3% purchase NDCG@8 [+8.1%, +14.6%] over no-distillation`."""
    name, column = metrics["exported"], metric_columns(metrics)[0]
    gain = metrics["models"][name][column].get("gain")
    baseline = metrics["baseline"].replace("_", "-")
    if gain is None:
        return f"{name} is the baseline {baseline}: no gain to report"
    return f"{name} gain: {gain['value']:+.1%} {metrics['label']} {column.upper()} {_bracket(gain)} over {baseline}"


def _interval(metric: dict[str, float]) -> str:
    return f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"


def _gain(gain: dict[str, float]) -> str:
    return f"{gain['value']:+.1%} {_bracket(gain)}"


def _bracket(gain: dict[str, float]) -> str:
    return f"[{gain['low']:+.1%}, {gain['high']:+.1%}]"
