"""A comparison as JSON and as a text table for a terminal. Pure: no Beam."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from beam_jobs.drift.comparison import Finding
from beam_jobs.drift.feature_figures import figures
from beam_jobs.drift.feature_pairs import FeaturePair
from beam_jobs.drift.thresholds import ComparisonOptions

_MAX_VALUE_CHARACTERS = 40
REPORT_COLUMNS = ("", "feature", "measure", "A", "B", "change", "limit")


def report_of(
    sides: Mapping[str, Any],
    difference: str | None,
    findings: Sequence[Finding],
    pairs: Iterable[FeaturePair],
    options: ComparisonOptions,
) -> dict[str, Any]:
    """The report as JSON. sides: descriptions of `a` and `b`. difference: the first one of their specs, or None."""
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


def drifting_features(report: Mapping[str, Any]) -> list[str]:
    """Names of the features that drift, the most severe first."""
    return list(dict.fromkeys(finding["feature"] for finding in report["findings"] if finding["drift"]))


def verdict(report: Mapping[str, Any]) -> str:
    """The result in one sentence."""
    names, compared = drifting_features(report), len(report["features"])
    parts = [f"drift in {', '.join(names)}"] if names else []
    parts += [f"the features differ ({report['spec_difference']})"] if report["spec_difference"] else []
    return "; ".join(parts) or f"no drift in {compared} features"


def report_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """All drifting findings, then the finding nearest its limit of each other feature; columns as in REPORT_COLUMNS."""
    shown, seen = [], set(drifting_features(report))
    for finding in report["findings"]:
        if finding["drift"] or finding["feature"] not in seen:
            seen.add(finding["feature"])
            shown.append(report_row(finding))
    return shown


def report_row(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one finding. Values from logs are escaped for terminals and browsers."""
    a, b = (_figure(finding["kind"], finding[side]) for side in ("a", "b"))
    status = "DRIFT" if finding["drift"] else "ok"
    return (
        status,
        finding["feature"],
        _describe_finding(finding),
        a,
        b,
        format_number(finding["value"]),
        _limit(finding),
    )


def _describe_finding(finding: Mapping[str, Any]) -> str:
    """The compared quantity in a few words."""
    of = printable_value(finding["of"])
    return {
        "divergence": f"divergence of {of}" if of else "divergence",
        "share_change": f"share of {of}",
        "differing_groups": "groups that differ between the views",
        "leaked": f"not a regular feature, but {of}",
    }.get(finding["kind"], of)


def _limit(finding: Mapping[str, Any]) -> str:
    if finding["threshold"] is None:
        return "not judged"
    by_chance = finding["chance"] > finding["threshold"]
    return f"{format_number(finding['chance'])} by chance" if by_chance else format_number(finding["threshold"])


def _figure(kind: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"median {format_number(value)}" if kind == "divergence" else format_percent(value)


def format_number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def format_percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def printable_value(text: str) -> str:
    """A value on one line, cut to _MAX_VALUE_CHARACTERS, with control and bidirectional characters escaped."""
    cut = text if len(text) <= _MAX_VALUE_CHARACTERS else text[: _MAX_VALUE_CHARACTERS - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def terminal_table(report: Mapping[str, Any]) -> str:
    """The terminal's table: drifting features first, the verdict last."""
    lines = [REPORT_COLUMNS, *report_rows(report)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(REPORT_COLUMNS))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    heads = [f"{name.upper()}: {describe_side(report[name])}" for name in ("a", "b")]
    return "\n".join([*heads, "", *text, "", *notes(report), verdict(report)])


def describe_side(side: Mapping[str, Any]) -> str:
    """Describes a side: 'build/monday, 40,000 groups with 640,000 items'."""
    view = " (serving view)" if side["view"] == "serving" else ""
    text = f"{side['dataset']}{view}, {side['groups']:,} groups with {side['items']:,} items"
    if side["sampled_groups"] < side["groups"]:
        text += f", {side['sampled_groups']:,} groups sampled at random"
    return text


def notes(report: Mapping[str, Any]) -> Iterator[str]:
    """Notes on how the limits were set."""
    judged = [finding for finding in report["findings"] if finding["threshold"] is not None]
    by_chance = sum(finding["chance"] > finding["threshold"] for finding in judged)
    if by_chance:
        yield (
            f"for {by_chance} of {len(judged)} measures the limit is the chance bound, which exceeds the threshold; "
            "larger samples lower it"
        )
