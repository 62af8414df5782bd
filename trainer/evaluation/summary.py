"""The table that ends a run, and its last line: what the student gained."""

from typing import Any

NAMES = {"random_order": "random order", "bm25": "BM25", "oracle": "oracle (true relevance)"}
ORDER = {"reference": 0, "teacher": 1, "imputed": 2, "student": 3}


def print_summary(metrics: dict[str, Any]) -> None:
    """Prints the table and the gain line of `metrics`, as `trainer.evaluate` returns them."""
    print()
    print("\n".join(table_lines(metrics)))
    print()
    print(gain_line(metrics), flush=True)


def rows_of(metrics: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(name, model) in the order that people read: random, BM25, teachers, imputed ones, students, the oracle last."""
    models = metrics["models"].items()
    return sorted(models, key=lambda row: (row[0] == "oracle", ORDER[row[1]["kind"]]))


def columns_of(metrics: dict[str, Any]) -> list[str]:
    """The metrics that every model has: ndcg@k by k, then relevance_ndcg@8 where truth is known."""
    columns = [f"ndcg@{cutoff}" for cutoff in metrics["cutoffs"]]
    return columns + [name for name in metrics["models"]["random_order"] if name.startswith("relevance_ndcg")]


def table_lines(metrics: dict[str, Any]) -> list[str]:
    """A Markdown table: purchase NDCG with intervals, and the paired gain over the baseline."""
    columns = columns_of(metrics)
    label = metrics["label"]
    head = [
        f"{label} {name.upper()}" if name.startswith("ndcg") else name.replace("_", " ").replace("ndcg", "NDCG")
        for name in columns
    ]
    lines = [["model", *head, f"gain over {metrics['baseline']}"]]
    for name, model in rows_of(metrics):
        first = columns[0]
        cells = [_interval(model[column]) if column == first else f"{model[column]['value']:.3f}" for column in columns]
        gain = model[first].get("gain")
        lines.append([shown_name(name, model), *cells, _gain(gain) if gain else ""])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    groups = f"{metrics['positive_test_groups']:,} positive test groups of {metrics['test_groups']:,}"
    note = f"{groups}; brackets: {metrics['confidence']:.0%} bootstrap intervals; "
    note += "teachers see privileged features, so cannot serve."
    return [rows[0], rule, *rows[1:], "", note]


def shown_name(name: str, model: dict[str, Any]) -> str:
    if model["kind"] in ("teacher", "imputed"):
        return f"teacher: {name.removeprefix('teacher_').replace('_imputed_', ', imputed ')}"
    return NAMES.get(name, name)


def gain_line(metrics: dict[str, Any]) -> str:
    """`student gain: +11.3% purchase NDCG@8 [+8.1%, +14.6%] over no-distillation`."""
    name, column = metrics["exported"], columns_of(metrics)[0]
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
