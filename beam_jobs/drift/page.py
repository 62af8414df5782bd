"""Renders a comparison as one HTML file with histograms: no script, no external resources, log text escaped."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from beam_jobs.drift.charts import Chart, histogram_chart, shares_chart
from beam_jobs.drift.report import (
    REPORT_COLUMNS,
    describe_side,
    drifting_features,
    format_number,
    notes,
    report_row,
    report_rows,
    verdict,
)

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1d2733;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0}
table.figures{display:inline-table;margin-right:2rem;vertical-align:top}
td,th{padding:.2rem .8rem;border-bottom:1px solid #d8dee4;text-align:left;overflow-wrap:break-word}
.verdict{font-size:1.2rem;font-weight:600}
.drift td{background:#fdeee9}.drift td:first-child{color:#a3290b;font-weight:600}
section{border-top:2px solid #d8dee4;margin-top:2rem}
figure{display:inline-block;margin:1rem 2rem 1rem 0;vertical-align:top}
b.a{color:#2f6fb3}b.b{color:#9a6300}rect.a{fill:#2f6fb3}rect.b{fill:#d98e04}
svg text{font:11px system-ui,sans-serif;fill:#1d2733}
"""
# Allows only the page's own style, both from disk and from a server.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)

_TEMPLATE = jinja2.Environment(
    autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
).from_string(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width">
<title>Drift report: {{ verdict }}</title>
<style>{{ style }}</style>
<h1>Drift report</h1>
<p><b class="a">A</b>: {{ a }}<br><b class="b">B</b>: {{ b }}</p>
<p class="verdict">{{ verdict }}</p>
{% macro findings(lines) %}
<table><tr>{% for cell in head %}<th>{{ cell }}{% endfor %}</tr>
{% for line in lines %}
<tr{% if line[0] == "DRIFT" %} class="drift"{% endif %}>{% for cell in line %}<td>{{ cell }}{% endfor %}</tr>
{% endfor %}
</table>
{% endmacro %}
{{ findings(rows) }}
{% for note in notes %}
<p>{{ note }}</p>
{% endfor %}
{% for feature in features %}
<section><h2>{{ feature.name }}</h2>
<p>{{ feature.form }}</p>
{% if feature.findings %}
{{ findings(feature.findings) }}
{% endif %}
<table class="figures"><tr><th><th><b class="a">A</b><th><b class="b">B</b></tr>
{% for line in feature.figures %}
<tr>{% for cell in line %}<td>{{ cell }}{% endfor %}</tr>
{% endfor %}
</table>
{% for chart in feature.charts %}
<figure><svg width="{{ chart.width }}" height="{{ chart.height }}" role="img" aria-label="{{ chart.title }}">
{% for bar in chart.bars %}
<rect class="{{ bar.side }}" x="{{ bar.x | round(1) }}" y="{{ bar.y | round(1) }}" width="{{ bar.width | round(1) }}" \
height="{{ bar.height | round(1) }}"><title>{{ bar.title }}</title></rect>
{% endfor %}
{% for word in chart.words %}
<text x="{{ word.x | round(1) }}" y="{{ word.y }}" text-anchor="{{ word.anchor }}">{{ word.text }}</text>
{% endfor %}
</svg><figcaption>{{ chart.title }}</figcaption></figure>
{% endfor %}
</section>
{% endfor %}
</html>
"""
)


def render_page(report: Mapping[str, Any]) -> str:
    """The HTML file; features that drift come first."""
    first = drifting_features(report)
    names = [name for name in first if name in report["features"]]
    names += [name for name in report["features"] if name not in first]
    return _TEMPLATE.render(
        policy=POLICY,
        style=Markup(STYLE),
        verdict=verdict(report),
        a=describe_side(report["a"]),
        b=describe_side(report["b"]),
        head=REPORT_COLUMNS,
        rows=report_rows(report),
        notes=list(notes(report)),
        features=[_feature(name, report) for name in names],
    )


def _feature(name: str, report: Mapping[str, Any]) -> dict[str, Any]:
    found = report["features"][name]
    return {
        "name": name,
        "form": f"{found['role']}, {found['type']}, one value per {'group' if found['level'] == 'context' else 'item'}",
        "findings": [report_row(finding) for finding in report["findings"] if finding["feature"] == name],
        "figures": list(_figures(found)),
        "charts": list(_charts(found)),
    }


def _figures(found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields (figure name, A, B)."""
    a, b = found["a"], found["b"]
    for key, name in (
        ("values", "values"),
        ("missing", "missing"),
        ("distinct_in_sample", "distinct values"),
    ):
        if key in a and key in b:
            yield name, f"{a[key]:,}", f"{b[key]:,}"
    for axis, figures in a["numbers"].items():
        for statistic, value in figures.items():
            yield (
                f"{axis}: {statistic}" if axis else statistic,
                format_number(value),
                format_number(b["numbers"][axis][statistic]),
            )


def _charts(found: Mapping[str, Any]) -> Iterator[Chart]:
    for axis, histogram in found["histograms"].items():
        yield histogram_chart(axis or "values", histogram)
    if found["top"]:
        yield shares_chart("most frequent values", found["top"])
