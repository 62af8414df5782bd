"""The pipeline as a runner elsewhere gets it: nothing of the launcher's machine in it, its functions load anywhere."""

import base64
import bz2
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import DockerEnvironment

from beam_jobs.joins.dataset_options import DatasetOptions
from beam_jobs.launch.beam_options import pipeline_options
from beam_jobs.sinks.publishing import PublishDataset
from beam_jobs.sources.inputs import DatasetInputs
from beam_jobs.transforms.dataset_pipeline import declare_pipeline
from features.spec import spec_from_json
from tests.features.specs import DEMO

ROOT = Path(__file__).parents[3]
IMAGE = "registry.example/privrank-beam:1"
LOAD_FUNCTIONS = """
import sys
from apache_beam.internal import pickler
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as api
pipeline = api.Pipeline.FromString(open(sys.argv[1], "rb").read())
loaded = 0
for transform in pipeline.components.transforms.values():
    if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
        function = api.ParDoPayload.FromString(transform.spec.payload).do_fn
        if function.urn == python_urns.PICKLED_DOFN_INFO:
            pickler.loads(function.payload)
            loaded += 1
    elif transform.spec.urn.startswith("beam:transform:combine_"):
        pickler.loads(api.CombinePayload.FromString(transform.spec.payload).combine_fn.payload)
        loaded += 1
print(loaded)
"""


@pytest.fixture(scope="module")
def proto() -> Any:
    """The demo's job over logs on an object store, with every optional part."""
    options = DatasetOptions(max_requests_per_hour=100, max_groups_per_query=50)
    logs, products = [f"gs://shop/logs/events-{n}.jsonl.gz" for n in range(3)], ["gs://shop/products.jsonl.gz"]
    inputs = DatasetInputs("test", spec_from_json(DEMO), options, 7, logs, 3 << 30, products, None, [], "key")
    pipeline = beam.Pipeline(options=pipeline_options([]))  # Dataflow's own options would have it ask for credentials
    found = declare_pipeline(pipeline, inputs, "gs://shop/dataset/run-1/scratch", inputs.shards(1))
    _ = found | PublishDataset(inputs, "gs://shop/dataset", "run-1")
    return pipeline.to_runner_api(default_environment=DockerEnvironment.from_container_image(IMAGE))


def test_its_workers_use_the_image_and_no_file_of_this_machine_is_named(proto: Any) -> None:
    (environment,) = proto.components.environments.values()
    assert IMAGE.encode() in environment.payload
    content = b"".join([proto.SerializeToString(), *functions(proto)])
    assert b"gs://shop/logs/events-2.jsonl.gz" in content
    assert b"gs://shop/dataset/run-1/scratch/parts" in content
    for path in (ROOT, Path.home(), Path(tempfile.gettempdir()), Path(sys.prefix)):
        found = re.findall(re.escape(str(path).encode()) + rb"[\w./-]*", content)
        assert all(name.endswith(b".py") for name in found)  # what tracebacks call the source of a function


def functions(proto: Any) -> list[bytes]:
    """The pickled functions of a pipeline, as they are before Beam packs them."""
    found = []
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            found.append(beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload).do_fn.payload)
        elif transform.spec.urn.startswith("beam:transform:combine_"):
            found.append(beam_runner_api_pb2.CombinePayload.FromString(transform.spec.payload).combine_fn.payload)
    return [bz2.decompress(base64.b64decode(payload)) for payload in found if payload]


def test_its_functions_load_in_a_fresh_process_that_has_the_image_s_packages_alone(proto: Any, tmp_path: Path) -> None:
    for package in ("beam_jobs", "features", "protos"):  # what the image's target `beam` copies
        shutil.copytree(ROOT / package, tmp_path / "image" / package)
    (tmp_path / "pipeline").write_bytes(proto.SerializeToString())
    command = [sys.executable, "-W", "ignore", "-c", LOAD_FUNCTIONS, str(tmp_path / "pipeline")]
    done = subprocess.run(
        command, cwd="/", env={"PYTHONPATH": str(tmp_path / "image")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 30
