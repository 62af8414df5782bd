"""The alert rules of `deploy/`, and which of them fire on what a gateway's /metrics said."""

from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.serving.observability.promql import Labels, Samples, evaluate, seconds
from tests.serving.processes import ROOT

RULES_FILE, UNIT_TESTS = ROOT / "deploy" / "alerts.yml", ROOT / "deploy" / "alerts_test.yml"
TARGET = {"job": "privrank", "instance": "gateway:8000"}  # what Prometheus adds to each sample
MINUTE = 60.0


def load_rules(path: Path = RULES_FILE) -> dict[str, dict[str, Any]]:
    """The rules by name."""
    groups = yaml.safe_load(path.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


RULES = load_rules()


def firing(alert: str, samples: Samples, at: float, interval: float = MINUTE) -> list[dict[str, str]]:
    """The labels with which an alert fires: its expression held at each evaluation for the rule's `for`."""
    rule = RULES[alert]
    since, times = at - seconds(rule.get("for", "0s")), [at]
    while times[-1] - interval >= since:
        times.append(times[-1] - interval)
    held: set[Labels] | None = None
    for time in times:
        value = evaluate(rule["expr"], samples, time)
        if isinstance(value, float):
            raise ValueError(f"{alert} is a number, expected series")
        held = set(value) if held is None else held & value.keys()
    return [dict(labels) | rule["labels"] for labels in held or ()]


class Timeline:
    """Scrapes of a gateway, put at times of the test's own: an hour of Prometheus takes no hour here."""

    def __init__(self) -> None:
        self.samples, self.now = Samples(), 0.0

    def hold(self, text: str | None, minutes: float, every: float = 1.0) -> "Timeline":
        """For so long each scrape says this; None: the gateway does not answer."""
        series = series_of(text)
        for _ in range(round(minutes / every)):
            self.now += every * MINUTE
            self.samples.add(self.now, series)
        return self

    def fires(self, alert: str) -> list[dict[str, str]]:
        return firing(alert, self.samples, self.now)


def series_of(text: str | None) -> dict[tuple[str, Labels], float]:
    """The series of a scrape, with `up` and the labels that Prometheus adds."""
    series = {("up", frozenset(TARGET.items())): float(text is not None)}
    for family in text_string_to_metric_families(text or ""):
        for sample in family.samples:
            series[sample.name, frozenset((sample.labels | TARGET).items())] = sample.value
    return series
