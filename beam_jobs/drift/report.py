"""A comparison as JSON, and in words for a terminal. Pure: no Beam."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from beam_jobs.comparison_options import ComparisonOptions
from beam_jobs.dataset_comparison import Finding
from beam_jobs.feature_figures import figures
from beam_jobs.feature_pairs import Pair

MOST_CHARACTERS = 40  # shown of a value
HEAD = ("", "feature", "what", "A", "B", "change", "limit")


def report_of(
    sides: Mapping[str, Any],
    difference: str | None,
    findings: Sequence[Finding],
    pairs: Iterable[Pair],
    options: ComparisonOptions,
) -> dict[str, Any]:
    """As JSON. sides: what `a` and `b` are, in words and counts. difference: of their specs, the first one in words."""
    ordered = sorted(findings, key=lambda finding: (not finding.is_drift, -finding.severity))
    axes: dict[str, set[str]] = {}
    for finding in findings:
        axes.setdefault(finding.feature, set()).add(finding.of)
    return {
        "drift": difference is not None or any(finding.is_drift for finding in findings),
        "spec_difference": difference,
        **sides,
        "options": options.model_dump(),
        "findings": [{**asdict(finding), "drift": finding.is_drift} for finding in ordered],
        "features": {pair.feature.name: figures(pair, axes.get(pair.feature.name, ())) for pair in pairs},
    }


def drifting(report: Mapping[str, Any]) -> list[str]:
    """The features that drift, the furthest first."""
    return list(dict.fromkeys(finding["feature"] for finding in report["findings"] if finding["drift"]))


def verdict(report: Mapping[str, Any]) -> str:
    """One sentence."""
    names, compared = drifting(report), len(report["features"])
    parts = [f"drift in {', '.join(names)}"] if names else []
    parts += [f"other features ({report['spec_difference']})"] if report["spec_difference"] else []
    return " and ".join(parts) or f"no drift in {compared} features"


def rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """All drifting findings, then of each other feature the one nearest its limit; cells as HEAD names them."""
    found, seen = [], set(drifting(report))
    for finding in report["findings"]:
        if finding["drift"] or finding["feature"] not in seen:
            seen.add(finding["feature"])
            found.append(row(finding))
    return found


def row(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """One finding's cells. Values of logs have lost what a terminal or a browser would obey."""
    a, b = (_figure(finding["kind"], finding[side]) for side in ("a", "b"))
    status = "DRIFT" if finding["drift"] else "ok"
    return status, finding["feature"], what(finding), a, b, number(finding["value"]), _limit(finding)


def what(finding: Mapping[str, Any]) -> str:
    """What was compared, in a few words."""
    of = printable(finding["of"])
    return {
        "divergence": f"divergence of {of}" if of else "divergence",
        "share_change": f"share of {of}",
        "differing_groups": "groups that differ between the views",
        "smuggled": f"not for serving, yet {of}",
    }.get(finding["kind"], of)


def _limit(finding: Mapping[str, Any]) -> str:
    if finding["threshold"] is None:
        return "not judged"
    by_chance = finding["chance"] > finding["threshold"]
    return f"{number(finding['chance'])} by chance" if by_chance else number(finding["threshold"])


def _figure(kind: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"median {number(value)}" if kind == "divergence" else percent(value)


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def printable(text: str) -> str:
    """A value in one line without control characters or changes of direction, cut to MOST_CHARACTERS."""
    cut = text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def table(report: Mapping[str, Any]) -> str:
    """The terminal's table: what drifts comes first, and the verdict last."""
    lines = [HEAD, *rows(report)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    heads = [f"{name.upper()}: {described(report[name])}" for name in ("a", "b")]
    return "\n".join([*heads, "", *text, "", *notes(report), verdict(report)])


def described(side: Mapping[str, Any]) -> str:
    """A side in words: 'build/monday, 40,000 groups of 640,000 items'."""
    view = " (serving view)" if side["view"] == "serving" else ""
    text = f"{side['dataset']}{view}, {side['groups']:,} groups of {side['items']:,} items"
    if side["sampled_groups"] < side["groups"]:
        text += f", {side['sampled_groups']:,} groups of them drawn at random"
    return text


def notes(report: Mapping[str, Any]) -> Iterator[str]:
    """What a reader should know of the limits."""
    judged = [finding for finding in report["findings"] if finding["threshold"] is not None]
    by_chance = sum(finding["chance"] > finding["threshold"] for finding in judged)
    if by_chance:
        yield (
            f"{by_chance} of {len(judged)} measures may exceed their threshold by chance in samples so small: there, "
            "what chance reaches is the limit"
        )
