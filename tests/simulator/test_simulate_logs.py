import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from google.protobuf import json_format
from pydantic import BaseModel

from beam_jobs.sources.native_log import INTERACTIONS, Event, Malformed, read_event
from features.errors import InputError
from features.manifest import parse_manifest
from features.task import load_task, parse_section
from protos import search_log_pb2
from simulator.simulate_logs import LogsManifest, make_shop, simulate_logs
from simulator.simulated_log import Funnel, Simulation, SimulatorConfig
from tests.published import contents, version_of

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("PRIVRANK_DATA", ROOT.parent / "shared" / "data")) / "esci150" / "pairs.tsv.gz"
DAY_MS = 86_400_000
NO_FAULTS = {"duplicate": 0.0, "late": 0.0, "unknown_request": 0.0, "unknown_item": 0.0, "malformed": 0.0}
SMALL: dict[str, Any] = {
    "requests": 400,
    "shards": 5,
    "catalogue": {"products": {"count": 800}, "queries": {"count": 120}},
    "faults": dict.fromkeys(NO_FAULTS, 0.05),
}


def config_of(**fields: Any) -> SimulatorConfig:
    return parse_section({"simulator": {**SMALL, **fields}}, "simulator", SimulatorConfig)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "simulator", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def task_file(folder: Path, **fields: Any) -> str:
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump({"name": "small", "simulator": {**SMALL, **fields}}))
    return str(path)


def lines_of(folder: Path) -> list[bytes]:
    files = sorted(version_of(folder).glob("events-*.jsonl.gz"))
    return [line for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]


def events_of(folder: Path) -> list[Event]:
    events = [read_event(line) for line in lines_of(folder)]
    assert not [event for event in events if isinstance(event, Malformed)]
    return events  # type: ignore[return-value]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs without faults: 1000 requests."""
    output = tmp_path_factory.mktemp("clean") / "logs"
    simulate_logs(config_of(requests=1000, faults=NO_FAULTS), str(output), None, workers=1)
    return output


# ---- the command ----


@pytest.mark.slow
def test_command_writes_the_same_bytes_with_one_worker_and_with_three(tmp_path):
    task = task_file(tmp_path)
    for workers in (1, 3):
        done = run_command("--config", task, "--output", str(tmp_path / f"of_{workers}"), "--workers", str(workers))
        assert done.returncode == 0, done.stderr
        assert "400 of 400 requests" in done.stdout
        assert "all behaviour is simulated" in done.stdout
    one, three = contents(tmp_path / "of_1"), contents(tmp_path / "of_3")
    assert sorted(one) == sorted(
        [f"events-0000{shard}-of-00005.jsonl.gz" for shard in range(5)] + ["products.jsonl.gz", "relevance.tsv.gz"]
    )
    assert one == three


def test_a_second_run_is_up_to_date_and_a_changed_config_runs_again(tmp_path, capsys):
    output = tmp_path / "logs"
    simulate_logs(config_of(), str(output), None, workers=1)
    first = contents(output)
    simulate_logs(config_of(), str(output), None, workers=2)
    assert capsys.readouterr().out.endswith(f"up to date: {output}\n")
    simulate_logs(config_of(seed=8), str(output), None, workers=1)
    assert contents(output) != first
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["logs"]


def test_gzip_files_carry_no_time(clean):
    for path in version_of(clean).glob("*.gz"):
        assert path.read_bytes()[4:8] == bytes(4), path.name


def test_manifest_is_of_kind_logs_and_counts_what_happened(clean):
    manifest = parse_manifest((clean / "manifest.json").read_bytes(), "manifest", LogsManifest)
    summary = manifest.options["summary"]
    types = Counter(event.type for event in events_of(clean))
    assert summary["events"] == dict(types)
    assert summary["lines"] == sum(types.values())
    assert summary["faults"] == {}
    assert sum(summary["clicked_at_position"]) == types["click"]
    assert SimulatorConfig.model_validate_json(json.dumps(manifest.options["simulator"])).requests == 1000


def test_the_demo_task_file_spells_out_the_defaults():
    assert (
        parse_section(load_task(str(ROOT / "configs/product_search.yaml")), "simulator", SimulatorConfig)
        == SimulatorConfig()
    )


def test_the_guide_explains_every_parameter():
    guide = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    assert [name for name in parameters_of(SimulatorConfig) if f"`{name}`" not in guide] == []


def parameters_of(section: type[BaseModel]) -> Iterator[str]:
    for name, info in section.model_fields.items():
        yield name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from parameters_of(info.annotation)


def test_help_shows_an_example():
    done = run_command("--help")
    assert done.returncode == 0
    assert "python -m simulator --config configs/product_search.yaml --output build/demo/logs\n" in done.stdout


# ---- the log ----


def test_every_line_is_a_search_event_of_the_proto(clean):
    for line in lines_of(clean)[:600]:
        event = json_format.Parse(line, search_log_pb2.SearchEvent())
        assert event.event_id
        assert event.WhichOneof("event")


def test_impressions_show_distinct_items_at_positions_from_the_top(clean):
    impressions = [event for event in events_of(clean) if event.type == "impression"]
    assert len({event.request_id for event in impressions}) == len(impressions) == 1000
    for event in impressions:
        items = event.body["items"]
        assert [item["position"] for item in items] == list(range(16))
        assert len({item["item_id"] for item in items}) == 16
        assert all(set(item) == {"item_id", "position"} for item in items)


def test_interactions_follow_their_impression_on_a_shown_item_and_ids_are_unique(clean):
    events = events_of(clean)
    assert len({event.event_id for event in events}) == len(events)
    shown = {event.request_id: event for event in events if event.type == "impression"}
    seen = {kind: set() for kind in INTERACTIONS}
    for event in events:
        if event.type != "impression":
            impression = shown[event.request_id]
            assert event.body["item_id"] in {item["item_id"] for item in impression.body["items"]}
            assert event.timestamp_ms > impression.timestamp_ms
            assert event.user_id == impression.user_id
            seen[event.type].add((event.request_id, event.body["item_id"]))
    assert seen["purchase"] <= seen["add_to_cart"] <= seen["click"]
    assert seen["purchase"]


def test_files_are_ordered_by_time_and_cover_the_days(clean):
    for path in version_of(clean).glob("events-*.jsonl.gz"):
        stamps = [json.loads(line)["timestamp_ms"] for line in gzip.decompress(path.read_bytes()).splitlines()]
        assert stamps == sorted(stamps)
    stamps = [event.timestamp_ms for event in events_of(clean) if event.type == "impression"]
    start = 1_740_960_000_000  # 2025-03-03 00:00 UTC
    assert start <= min(stamps) < start + DAY_MS / 2
    assert start + 13.5 * DAY_MS < max(stamps) <= start + 14 * DAY_MS


def test_the_evening_is_busier_than_the_early_morning():
    simulation = Simulation(config_of(requests=20_000, shards=1), make_shop(config_of(), None))
    stamps = simulation._timestamps(np.arange(20_000), np.random.default_rng(0))
    hours = Counter((stamps // 3_600_000 % 24).tolist())
    # the rate is 1 + 0.6 * cos(...): 1.6 at 20:00 and 0.4 at 08:00
    assert (hours[19] + hours[20]) / (hours[7] + hours[8]) == pytest.approx(4.0, rel=0.25)


def test_product_table_holds_every_shown_item_with_its_title(clean):
    rows = [
        json.loads(line)
        for line in gzip.decompress((version_of(clean) / "products.jsonl.gz").read_bytes()).splitlines()
    ]
    assert len({row["item_id"] for row in rows}) == len(rows) == 800
    assert all(set(row) == {"item_id", "title", "brand", "price", "rating"} for row in rows)
    shown = {
        item["item_id"] for event in events_of(clean) if event.type == "impression" for item in event.body["items"]
    }
    assert shown <= {row["item_id"] for row in rows}


def test_relevance_is_of_the_pairs_that_were_shown_and_true(clean):
    header, *rows = gzip.decompress((version_of(clean) / "relevance.tsv.gz").read_bytes()).decode().splitlines()
    assert header == "query\titem_id\trelevance"
    table = {(query, item): int(grade) for query, item, grade in (row.split("\t") for row in rows)}
    assert len(table) == len(rows)
    impressions = [event for event in events_of(clean) if event.type == "impression"]
    assert set(table) == {
        (event.body["query"], item["item_id"]) for event in impressions for item in event.body["items"]
    }
    shop = make_shop(config_of(), None)
    query_index = {text: index for index, text in enumerate(shop.queries)}
    item_index = {product.item_id: index for index, product in enumerate(shop.products)}
    queries = np.array([query_index[query] for query, _ in table])
    items = np.array([[item_index[item]] for _, item in table])
    assert shop.grade(queries, items)[0][:, 0].tolist() == list(table.values())


def test_titles_can_stand_in_the_impression(tmp_path):
    output = tmp_path / "logs"
    simulate_logs(config_of(requests=20, features_in="impression", faults=NO_FAULTS), str(output), None, workers=1)
    products = [
        json.loads(line)
        for line in gzip.decompress((version_of(output) / "products.jsonl.gz").read_bytes()).splitlines()
    ]
    titles = {row["item_id"]: row["title"] for row in products}
    impression = next(event for event in events_of(output) if event.type == "impression")
    for item in impression.body["items"]:
        assert item["features"]["title"] == titles[item["item_id"]]


def test_fewer_requests_than_shards_leave_no_empty_file(tmp_path):
    simulate_logs(config_of(requests=3), str(tmp_path / "logs"), None, workers=2)
    assert len(list(version_of(tmp_path / "logs").glob("events-*-of-00003.jsonl.gz"))) == 3


def test_the_demo_has_the_funnel_of_a_shop():
    config = parse_section(load_task(str(ROOT / "configs/product_search.yaml")), "simulator", SimulatorConfig)
    simulation = Simulation(config, make_shop(config, None))
    funnel = Funnel()
    for shard in (0, 5, 10):
        funnel.add(simulation.shard(shard).funnel)
    requests = funnel.events["impression"]
    shares = {kind: count / requests for kind, count in funnel.requests_with.items()}
    print(f"\nfunnel of {requests} requests:", {kind: round(share, 3) for kind, share in shares.items()})
    assert 0.40 < shares["click"] < 0.55
    assert 0.08 < shares["add_to_cart"] < 0.12
    assert 0.045 < shares["purchase"] < 0.065
    rates = [funnel.clicked_at[position] / requests for position in range(16)]
    assert rates[0] > rates[3] > rates[7] > rates[15] > 0
    bought = [funnel.purchased_of_grade[grade] / funnel.shown_of_grade[grade] for grade in range(4)]
    assert bought[3] > bought[2] > max(bought[0], bought[1])


def test_injected_faults_come_at_their_rates(tmp_path):
    output = tmp_path / "logs"
    rates = {"duplicate": 0.02, "late": 0.1, "unknown_request": 0.1, "unknown_item": 0.1, "malformed": 0.01}
    simulate_logs(config_of(requests=3000, faults=rates), str(output), None, workers=1)
    summary = json.loads((output / "manifest.json").read_bytes())["options"]["summary"]
    events, faults = summary["events"], summary["faults"]
    interactions = sum(events[kind] for kind in INTERACTIONS)
    everything = events["impression"] + interactions
    counted = {name: sum(count for key, count in faults.items() if key.split()[0] == name) for name in rates}
    for name in ("late", "unknown_request", "unknown_item"):
        assert counted[name] == pytest.approx(rates[name] * interactions, rel=0.25), name
    assert counted["duplicate"] == pytest.approx(rates["duplicate"] * everything, rel=0.4)
    assert faults["malformed"] == pytest.approx(rates["malformed"] * everything, rel=0.5)
    added = counted["duplicate"] + counted["unknown_request"] + counted["unknown_item"] + faults["malformed"]
    assert len(lines_of(output)) == summary["lines"] == everything + added
    assert sum(isinstance(read_event(line), Malformed) for line in lines_of(output)) == faults["malformed"]


# ---- judged pairs ----

HEADER = "query_id\tquery\tproduct_id\ttitle\tesci_label\tgain"


def pairs_file(folder: Path, *rows: str) -> str:
    path = folder / "pairs.tsv"
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    return str(path)


@pytest.mark.skipif(
    not DATA.exists(), reason="no ESCI pairs: set PRIVRANK_DATA to a folder that holds esci150/pairs.tsv.gz"
)
def test_logs_of_real_queries_and_titles(tmp_path):
    config = parse_section(load_task(str(ROOT / "configs/esci.yaml")), "simulator", SimulatorConfig)
    simulate_logs(config.model_copy(update={"requests": 3000}), str(tmp_path / "logs"), str(DATA), workers=1)
    summary = json.loads((tmp_path / "logs/manifest.json").read_bytes())["options"]["summary"]
    assert summary["queries"] == 150
    assert summary["shown_at_position"] == [3000] * 16
    shares = {kind: count / 3000 for kind, count in summary["requests_with"].items()}
    assert 0.40 < shares["click"] < 0.55
    assert 0.08 < shares["add_to_cart"] < 0.12
    assert 0.04 < shares["purchase"] < 0.07


# ---- what a user can mend ----


def refusal(*arguments: str) -> str:
    done = run_command(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_command_refuses_a_missing_config(tmp_path):
    assert "nowhere.yaml" in refusal("--config", "nowhere.yaml", "--output", str(tmp_path / "logs"))
    assert not (tmp_path / "logs").exists()


def test_command_refuses_a_bad_gain_and_leaves_nothing_behind(tmp_path):
    task = task_file(tmp_path, source="judged_pairs")
    pairs = pairs_file(tmp_path, "1\ta\tb\tc\tE\t-1")
    message = refusal("--config", task, "--output", str(tmp_path / "logs"), "--judged-pairs", pairs)
    assert "pairs.tsv, line 2: gain is '-1'" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs.tsv", "task.yaml"]


def test_a_refusal_in_a_worker_process_is_one_message_too(tmp_path):
    task = task_file(tmp_path, items_per_request=900)
    message = refusal("--config", task, "--output", str(tmp_path / "logs"), "--workers", "2")
    assert "simulator.items_per_request is 900, but the catalogue has 800 products" in message
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"requets": 5}, r"simulator\.requets is 5: unknown key"),
        ({"requests": "many"}, r"simulator\.requests is 'many'"),
        ({"source": "guesses"}, r"simulator\.source is 'guesses'"),
        ({"faults": {"late": 1.5}}, r"simulator\.faults\.late is 1\.5"),
        (
            {"behaviour": {"click": {"floor": 0.5, "ceiling": 0.1, "midpoint": 0, "steepness": 1}}},
            "ceiling 0.1 is below",
        ),
    ],
)
def test_a_wrong_section_is_refused_by_name(fields, message):
    with pytest.raises(InputError, match=message):
        parse_section({"simulator": fields}, "simulator", SimulatorConfig)


def test_judged_pairs_and_source_belong_together(tmp_path):
    with pytest.raises(InputError, match="--judged-pairs is not given"):
        simulate_logs(config_of(source="judged_pairs"), str(tmp_path / "logs"), None, workers=1)
    with pytest.raises(InputError, match=r"pairs\.tsv is given, but simulator\.source is 'catalogue'"):
        simulate_logs(config_of(), str(tmp_path / "logs"), "pairs.tsv", workers=1)
    with pytest.raises(InputError, match=r"cannot read judged pairs .*absent\.tsv: No such file"):
        simulate_logs(config_of(source="judged_pairs"), str(tmp_path / "logs"), str(tmp_path / "absent.tsv"), workers=1)


def test_a_directory_that_is_not_ours_is_not_replaced(tmp_path):
    output = tmp_path / "photos"
    output.mkdir()
    (output / "holiday.jpg").touch()
    with pytest.raises(InputError, match="not ours to replace"):
        simulate_logs(config_of(), str(output), None, workers=1)
    assert (output / "holiday.jpg").exists()
