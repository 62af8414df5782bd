"""Health and metadata as the Open Inference Protocol has them."""

from tests.serving.api.test_bad_requests import problem_of
from tests.serving.processes import GatewayProcess


def test_the_server_is_live_and_ready_and_names_itself(shop: GatewayProcess) -> None:
    assert shop.http.get("/v2/health/live").json() == {"live": True}
    assert shop.http.get("/v2/health/ready").json() == {"ready": True}
    assert shop.http.get("/v2").json() == {"name": "privrank", "version": "1", "extensions": []}


def test_a_models_metadata_names_the_inputs_of_its_signature(rich: GatewayProcess) -> None:
    metadata = rich.http.get("/v2/models/overlap").json()
    assert metadata["name"] == "overlap"
    assert metadata["versions"] == ["1"]
    assert metadata["platform"] == "tensorflow_savedmodel"
    inputs = {tensor["name"]: (tensor["datatype"], tensor["shape"]) for tensor in metadata["inputs"]}
    assert inputs == {
        "query": ("BYTES", [-1]),
        "hour": ("INT64", [-1]),
        "title": ("BYTES", [-1, -1]),
        "price": ("FP32", [-1, -1]),
        "brand": ("BYTES", [-1, -1]),
        "in_stock": ("BOOL", [-1, -1]),
        "colour": ("FP32", [-1, -1, 3]),
        "item_count": ("INT32", [-1]),
    }
    assert metadata["outputs"] == [{"name": "score", "datatype": "FP32", "shape": [-1, -1]}]


def test_each_version_has_its_own_path(shop: GatewayProcess) -> None:
    named = shop.http.get("/v2/models/overlap/versions/3")
    assert named.json() == shop.http.get("/v2/models/overlap").json()
    for path in ("/v2/models/overlap/ready", "/v2/models/overlap/versions/3/ready"):
        assert shop.http.get(path).json() == {"name": "overlap", "ready": True}


def test_another_model_or_version_is_404(shop: GatewayProcess) -> None:
    for path in (
        "/v2/models/other",
        "/v2/models/other/ready",
        "/v2/models/overlap/versions/2",
        "/v2/models/overlap/versions/03a/ready",
        "/v2/models/overlap/versions/²",
        "/v2/models/%00%F0%9F%9B%8B/versions/" + "9" * 5000,
    ):
        assert "3 of overlap" in problem_of(shop.http.get(path), 404, "model-not-served")["detail"]
