"""Each alert rule of `deploy/alerts.yml` fires on what a gateway in trouble says at /metrics, and on nothing before.

Two more rules are fired where a gateway of that kind runs: by `test_supervisor.py` and `test_tf_serving.py`. The rules'
unit tests, `deploy/alerts_test.yml`, run twice: by `tests.serving.observability.promql` and, where it is installed, by
promtool.
"""

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from serving.api.app import RANKING_HANDLERS
from serving.exports.store import PIN
from tests.serving.observability.alerts import MINUTE, RULES, RULES_FILE, TARGET, UNIT_TESTS, Timeline, firing
from tests.serving.observability.promql import Labels, Samples, evaluate, seconds
from tests.serving.processes import ROOT, START_SECONDS, GatewayProcess

OF_OTHER_GATEWAYS = {  # rule -> the test that fires it
    "PrivRankProcessReplaced": "server/test_supervisor.py",
    "PrivRankModelServerFails": "backends/test_tf_serving.py",
}
SETTINGS = {
    "queue": {"threads": 1, "waiting": 0, "request_seconds": 30.0},
    "reloading": {"every_seconds": 0.2, "again_seconds": 0.5},
    "shadow": {"version": "newest", "share": 1.0, "waiting": 100, "wait_seconds": 30.0},
}
HISTOGRAM = {"edges": [0.0, 0.4, 0.6, 1.0], "counts": [50, 50, 0]}  # scores of titles without and with half the query
Text = list[str]


@dataclass
class Troubled:
    """A gateway, and what /metrics said after each of a few healthy requests and after each trouble of a kind."""

    gateway: GatewayProcess
    folder: Path

    def scrape(self) -> str:
        return self.gateway.http.get("/metrics").text

    def scrapes(self, times: int, trouble: Callable[[], None]) -> Text:
        """What it says before, and after each time of trouble."""
        scrapes = [self.scrape()]
        for _ in range(times):
            trouble()
            scrapes.append(self.scrape())
        self.wait_until(lambda: not self.scoring())
        return scrapes

    def ask(self, *titles: str, timeout: int = 0, **values: Any) -> int:
        """The status for items of these titles."""
        headers = {"X-Request-Timeout-Ms": str(timeout)} if timeout else {}
        body = {"query": "blue sofa", "items": [{"title": title} | values for title in titles]}
        return self.gateway.post(body, headers=headers).status_code

    def wait_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not true():
            assert time.monotonic() < deadline, self.gateway.log[-5:]
            time.sleep(0.02)

    # --- what may happen to it

    def is_healthy(self) -> None:
        assert self.ask("oak table", "red sofa") == 200

    def fails(self) -> None:
        assert (self.ask("crash"), self.ask("broken")) == (500, 500)

    def is_overloaded(self) -> None:
        if not self.scoring():
            slow = {"query": "blue sofa", "items": ["slow sofa"]}
            url = f"{self.gateway.address}/rank"
            threading.Thread(target=httpx.post, args=(url,), kwargs={"json": slow, "timeout": 120}).start()
            self.wait_until(self.scoring)
        assert self.ask("sofa") == 503

    def is_late(self) -> None:
        assert self.ask(*["blue sofa"] * 1000, timeout=2) == 504
        self.wait_until(lambda: not self.scoring())

    def scoring(self) -> bool:
        return self.gateway.metric("privrank_queue_scoring") == 1

    def fails_in_the_shadow(self) -> None:
        failed = 'privrank_shadow_requests_total{outcome="failed",version="2"}'
        before = self.gateway.metric(failed)
        assert self.ask("velvet") == 200
        self.wait_until(lambda: self.gateway.metric(failed) == before + 1)

    def refuses_a_version(self) -> None:
        broken = self.folder / "77" / "assets.extra"
        broken.mkdir(parents=True, exist_ok=True)
        (broken / "manifest.json").write_text("{}")
        self.wait_until(lambda: self.gateway.metric('privrank_model_refused{version="77"}') == 1)

    def loses_its_store(self) -> None:
        failed = 'privrank_version_polls_total{result="failed"}'
        before = self.gateway.metric(failed)
        if self.folder.exists():
            self.folder.rename(self.unreachable)
        self.wait_until(lambda: self.gateway.metric(failed) > before)

    def recovers(self) -> None:
        if self.unreachable.exists():
            self.unreachable.rename(self.folder)
        shutil.rmtree(self.folder / "77", ignore_errors=True)
        self.wait_until(lambda: 'privrank_model_refused{version="77"}' not in self.scrape())

    @property
    def unreachable(self) -> Path:
        return self.folder.with_name("unreachable")

    def is_sent_a_privileged_feature(self) -> None:
        assert self.ask("sofa", click=True) == 422

    def scores_as_the_export_did(self) -> None:
        assert self.ask(*["oak table", "red sofa"] * 500) == 200

    def scores_otherwise(self) -> None:
        assert self.ask(*["blue sofa"] * 1000) == 200

    def clips(self) -> None:
        assert self.ask("oak table", "red sofa", price=1e6) == 200


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    """A gateway with one scoring thread, which serves version 1 and has version 2 in the shadow."""
    from tests.serving import exported_models

    folder = tmp_path_factory.mktemp("troubled")
    ranges = {"price": (0.0, 100.0), "hour": (0.0, 23.0), "colour": (0.0, 1.0)}
    exported_models.export(folder, exported_models.RICH, version=1, ranges=ranges, score_histogram=HISTOGRAM)
    shadow = exported_models.Overlap(exported_models.RICH, crash="velvet")
    exported_models.export(folder, exported_models.RICH, version=2, module=shadow, ranges=ranges)
    (folder / PIN).write_text("1")
    (folder / "gateway.yaml").write_text(yaml.safe_dump(SETTINGS))
    with GatewayProcess(folder, folder / "gateway.yaml") as gateway:
        gateway.wait_until_ready()
        gateway.wait_for_log("shadow", version=2)
        state = Troubled(gateway, folder)
        state.scores_as_the_export_did()
        yield state


# rule -> the trouble, how many times, minutes for which each scrape says the same, labels beside the target's
TROUBLES: dict[str, tuple[Callable[[Troubled], None], int, float, list[dict[str, str]]]] = {
    "PrivRankErrors": (Troubled.fails, 4, 3, [{"problem": "model-failed"}, {"problem": "non-finite-score"}]),
    "PrivRankOverloaded": (Troubled.is_overloaded, 4, 3, [{}]),
    "PrivRankLate": (Troubled.is_late, 6, 3, [{}]),
    "PrivRankShadowFails": (Troubled.fails_in_the_shadow, 3, 6, [{"version": "2"}]),
    "PrivRankVersionRefused": (Troubled.refuses_a_version, 1, 12, [{"version": "77"}]),
    "PrivRankPollsFail": (Troubled.loses_its_store, 5, 3, [{}]),
    "PrivRankPrivilegedFeature": (Troubled.is_sent_a_privileged_feature, 1, 3, [{}]),
}


def with_target(alert: str, labels: list[dict[str, str]]) -> list[dict[str, str]]:
    return [TARGET | RULES[alert]["labels"] | more for more in labels]


def ordered(alerts: list[dict[str, str]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted(labels.items()) for labels in alerts)


@pytest.mark.parametrize("alert", TROUBLES)
def test_a_rule_fires_on_its_fault_and_not_before(troubled: Troubled, alert: str) -> None:
    trouble, times, minutes, labels = TROUBLES[alert]
    timeline = Timeline()
    for scrape in troubled.scrapes(4, troubled.is_healthy):
        timeline.hold(scrape, minutes=6)
    assert not timeline.fires(alert)
    for scrape in troubled.scrapes(times, lambda: trouble(troubled)):
        timeline.hold(scrape, minutes)
    troubled.recovers()
    assert ordered(timeline.fires(alert)) == ordered(with_target(alert, labels))
    timeline.hold(troubled.scrape(), minutes=90)  # and over again
    assert not timeline.fires(alert)


def test_drift_is_judged_against_the_day_before(troubled: Troubled) -> None:
    alert, timeline = "PrivRankScoresDrift", Timeline()
    before = troubled.scrape()
    timeline.hold(before, minutes=2 * 24 * 60)
    assert not timeline.fires(alert)
    troubled.scores_otherwise()
    timeline.hold(troubled.scrape(), minutes=90)
    assert timeline.fires(alert) == with_target(alert, [{"version": "1"}])
    timeline.hold(troubled.scrape(), minutes=25 * 60)  # it has moved no further
    assert not timeline.fires(alert)


def test_clipping_is_judged_against_the_week_before(troubled: Troubled) -> None:
    alert, hour = "PrivRankValuesClipped", 60.0
    [first, second, third] = troubled.scrapes(2, troubled.is_healthy)
    [_, clipped] = troubled.scrapes(1, troubled.clips)
    timeline = Timeline().hold(first, 11 * hour, every=hour).hold(second, 6.75 * 24 * hour, every=hour)
    quiet = Timeline()
    quiet.samples.scrapes, quiet.now = list(timeline.samples.scrapes), timeline.now
    assert not quiet.hold(third, 12 * hour, every=hour).fires(alert)  # scored as last week
    assert timeline.hold(clipped, 12 * hour, every=hour).fires(alert) == with_target(alert, [{}])


def test_a_gateway_that_does_not_answer_is_down(troubled: Troubled) -> None:
    timeline = Timeline().hold(troubled.scrape(), minutes=5)
    assert not timeline.fires("PrivRankDown")
    assert timeline.hold(None, minutes=3).fires("PrivRankDown") == with_target("PrivRankDown", [{}])


def test_every_rule_is_fired_by_a_gateway() -> None:
    here = {*TROUBLES, "PrivRankScoresDrift", "PrivRankValuesClipped", "PrivRankDown"}
    assert here | OF_OTHER_GATEWAYS.keys() == RULES.keys()
    for alert, test in OF_OTHER_GATEWAYS.items():
        assert alert in (Path(__file__).parents[1] / test).read_text()


def test_the_runbook_says_what_to_do_about_each_alert() -> None:
    listed = set(re.findall(r"^\| `(PrivRank\w+)` \|", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE))
    assert listed == RULES.keys()


def test_a_ratio_of_series_with_different_labels_is_empty() -> None:
    """Why the rule of overload sums: what stood in the guide before could not fire."""
    samples = Samples()
    for minute in range(5):
        refused, asked = frozenset({("problem", "overloaded")}), frozenset({("route", "/rank"), ("status", "503")})
        series: dict[tuple[str, Labels], float] = {
            ("privrank_problems_total", refused): 10.0 * minute,
            ("privrank_requests_total", asked): 10.0 * minute,
        }
        samples.add(MINUTE * minute, series)
    ratio = 'rate(privrank_problems_total{problem="overloaded"}[5m]) / rate(privrank_requests_total[5m])'
    assert evaluate(ratio, samples, 4 * MINUTE) == {}


# --- the rules' unit tests

CASES = yaml.safe_load(UNIT_TESTS.read_text())["tests"]


def values_of(notation: str) -> Iterator[float | None]:
    """Promtool's notation: `a+bxn`, `a-bxn` and `axn` are n + 1 values, `_` is none."""
    for part in notation.split():
        if part == "_":
            yield None
            continue
        match = re.fullmatch(r"(-?[0-9.]+)(?:([+-][0-9.]+)?x([0-9]+))?", part)
        assert match, part
        for step in range(int(match[3] or 0) + 1):
            yield float(match[1]) + step * float(match[2] or 0)


def samples_of(case: dict[str, Any]) -> Samples:
    scrapes: dict[float, dict[tuple[str, Labels], float]] = {}
    for series in case["input_series"]:
        name, _, labels = series["series"].partition("{")
        key = name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))
        for step, value in enumerate(values_of(series["values"])):
            scrape = scrapes.setdefault(step * seconds(case["interval"]), {})
            if value is not None:
                scrape[key] = value
    samples = Samples()
    for at in sorted(scrapes):
        samples.add(at, scrapes[at])
    return samples


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_rules_unit_tests_hold(case: dict[str, Any]) -> None:
    samples = samples_of(case)
    for test in case["alert_rule_test"]:
        expected = [alert["exp_labels"] for alert in test["exp_alerts"]]
        fired = firing(test["alertname"], samples, seconds(test["eval_time"]))
        assert ordered(fired) == ordered(expected), test["eval_time"]


def test_each_rule_has_unit_tests_that_fire_it_and_that_do_not() -> None:
    outcomes = {(test["alertname"], bool(test["exp_alerts"])) for case in CASES for test in case["alert_rule_test"]}
    assert outcomes == {(alert, fires) for alert in RULES for fires in (True, False)}


def test_the_rules_count_the_requests_of_every_ranking_endpoint() -> None:
    patterns = re.findall(r'route=~"([^"]+)"', RULES_FILE.read_text())
    assert patterns
    for pattern in patterns:
        assert {path for path in RANKING_HANDLERS if re.fullmatch(pattern, path)} == RANKING_HANDLERS.keys()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed; the rest of this file runs")
@pytest.mark.parametrize("command", [("check", "rules", RULES_FILE.name), ("test", "rules", UNIT_TESTS.name)])
def test_promtool_agrees(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=RULES_FILE.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
