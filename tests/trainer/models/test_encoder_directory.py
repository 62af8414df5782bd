"""Directories of encoders: what is read from them, and one message for each thing that can be wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from features.errors import InputError
from tests.trainer.models.tiny_encoder import CONFIG, VOCABULARY, random_tensors, write_encoder
from trainer.models.encoder_directory import read_encoder
from trainer.models.safetensors_file import read_tensors

WORDS = "embeddings.word_embeddings.weight"


def test_an_encoder_is_read_with_its_special_pieces_first(tiny: Path) -> None:
    encoder, tensors = read_encoder(f"{tiny}/"), random_tensors()
    assert encoder.vocabulary[:6] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[unused0]", "[MASK]"]
    assert sorted(encoder.vocabulary) == sorted(VOCABULARY)
    rows = [VOCABULARY.index(piece) for piece in encoder.vocabulary]
    np.testing.assert_array_equal(encoder.tensors[WORDS], tensors[WORDS][rows])
    assert (encoder.pooling, encoder.lower_case) == ("mean", True)


def test_minilm_is_read_as_its_files_say(minilm: Path) -> None:
    encoder = read_encoder(str(minilm))
    assert (encoder.config.num_hidden_layers, encoder.config.hidden_size) == (6, 384)
    assert len(encoder.vocabulary) == 30_522
    assert (encoder.pooling, encoder.lower_case) == ("mean", True)
    assert "pooler.dense.weight" not in encoder.tensors


def test_the_fingerprint_tells_weights_apart_and_not_places(tiny: Path, tmp_path: Path) -> None:
    same, other = write_encoder(tmp_path / "same"), write_encoder(tmp_path / "other", random_tensors(seed=4))
    found = [read_encoder(str(path)).fingerprint for path in (tiny, same, other)]
    assert found[0] == found[1] != found[2]


def test_names_with_a_bert_prefix_and_heads_are_read_too(tmp_path: Path, tiny: Path) -> None:
    tensors = {f"bert.{name}": tensor for name, tensor in random_tensors().items()}
    tensors["cls.predictions.bias"] = np.zeros(3, np.float32)
    tensors["bert.embeddings.position_ids"] = np.arange(5)
    write_encoder(tmp_path, tensors)
    assert read_encoder(str(tmp_path)).fingerprint == read_encoder(str(tiny)).fingerprint


def as_bfloat16(values: np.ndarray) -> bytes:
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def write_raw(path: Path, dtype: str, shape: list[int], data: bytes) -> None:
    """A safetensors file of one tensor `x`, by hand."""
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


@pytest.mark.parametrize(
    ("dtype", "encode"),
    [
        ("F32", lambda values: values.astype("<f4").tobytes()),
        ("F16", lambda values: values.astype("<f2").tobytes()),
        ("BF16", as_bfloat16),
    ],
)
def test_each_float_type_is_read_as_float32(tmp_path: Path, dtype: str, encode: Callable[[np.ndarray], bytes]) -> None:
    values = np.array([[0.0, 1.0, -2.5], [0.15625, 96.0, -1.0]])  # exact in 8 bits of precision
    write_raw(tmp_path / "x.safetensors", dtype, [2, 3], encode(values))
    found = read_tensors(f"{tmp_path}/x.safetensors")["x"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a complete safetensors file"),
        (b"not a safetensors file at all", "is not a complete safetensors file"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "is not a complete safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "is not a complete safetensors file"),
    ],
)
def test_a_damaged_safetensors_file_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_tensors(f"{tmp_path}/x.safetensors")


@pytest.mark.parametrize("dtype", ["F64", "F8_E4M3"])
def test_other_float_types_are_refused(tmp_path: Path, dtype: str) -> None:
    write_raw(tmp_path / "x.safetensors", dtype, [1], bytes({"F64": 8, "F8_E4M3": 1}[dtype]))
    with pytest.raises(InputError, match=f"dtype {dtype}, expected F32, F16, BF16"):
        read_tensors(f"{tmp_path}/x.safetensors")


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "x.safetensors").open("wb") as file:
        file.truncate(5 << 30)  # sparse
    with pytest.raises(InputError, match=r"has 5,368,709,120 bytes, expected at most 4,294,967,296"):
        read_tensors(f"{tmp_path}/x.safetensors")


def change_tensors(directory: Path, **changes: Any) -> None:
    """Replaces tensors by name; None removes one."""
    tensors = {**random_tensors(), **changes}
    save_file({n: np.asarray(t) for n, t in tensors.items() if t is not None}, directory / "model.safetensors")


def write_json(name: str, content: Any) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))

    return write


def config(**changes: Any) -> Callable[[Path], None]:
    return write_json("config.json", {k: v for k, v in {**CONFIG, **changes}.items() if v is not None})


def vocabulary(*pieces: str) -> Callable[[Path], None]:
    return write_json("vocab.txt", "\n".join(pieces) + "\n")


KERNEL = "encoder.layer.1.output.dense.weight"
BREAKAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda d: (d / "config.json").unlink(), r"cannot read .*config.json \(no such file\)"),
    "no vocabulary": (lambda d: (d / "vocab.txt").unlink(), r"cannot read .*vocab.txt \(no such file\)"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), r"cannot read .*model.safetensors \(no such file\)"),
    "config is no JSON": (write_json("config.json", "{"), "config.json is not valid JSON"),
    "config is a list": (write_json("config.json", []), "config.json: content is "),
    "config nested deep": (write_json("config.json", "[" * 100_000), "config.json is not valid JSON"),
    "another model type": (config(model_type="roberta"), "model_type is 'roberta': Input should be 'bert'"),
    "no model type": (config(model_type=None), "model_type is missing"),
    "another activation": (config(hidden_act="gelu_new"), "hidden_act is 'gelu_new': Input should be 'gelu'"),
    "relative positions": (config(position_embedding_type="relative_key"), "position_embedding_type is 'relative_key'"),
    "huge width": (config(hidden_size=10**9), "hidden_size is 1000000000: Input should be less than or equal to 4096"),
    "no layers": (config(num_hidden_layers=0), "num_hidden_layers is 0"),
    "width is text": (config(hidden_size="wide"), "hidden_size is 'wide'"),
    "heads do not divide": (config(num_attention_heads=3), "hidden_size 16 is no multiple of num_attention_heads 3"),
    "epsilon is 0": (config(layer_norm_eps=0.0), "layer_norm_eps is 0.0"),
    "one token type": (config(type_vocab_size=1), "type_vocab_size is 1"),
    "more layers than weights": (
        config(num_hidden_layers=4),
        r"has no tensor 'encoder.layer.3.attention.output.LayerNorm.weight'",
    ),
    "fewer layers than weights": (config(num_hidden_layers=2), r"has the tensor 'encoder.layer.2"),
    "another inner width": (config(intermediate_size=25), r"shape \[24, 16\], expected \[25, 16\] by config.json"),
    "another vocabulary size": (config(vocab_size=99), r"vocab.txt has 66 pieces, expected the 99"),
    "a piece twice": (vocabulary(*VOCABULARY[:-1], "red"), "has the piece 'red' twice"),
    "no [SEP]": (vocabulary(*("x-y" if p == "[SEP]" else p for p in VOCABULARY)), r"has no piece '\[SEP\]'"),
    "vocabulary is no text": (lambda d: (d / "vocab.txt").write_bytes(b"\xff\xfe"), "vocab.txt is not UTF-8"),
    "a tensor missing": (lambda d: change_tensors(d, **{KERNEL: None}), f"has no tensor '{KERNEL}'"),
    "a tensor too many": (
        lambda d: change_tensors(d, **{"adapter.weight": np.ones(3, np.float32)}),
        "has the tensor 'adapter.weight'",
    ),
    "a wrong shape": (
        lambda d: change_tensors(d, **{KERNEL: np.ones((24, 16), np.float32)}),
        rf"tensor '{KERNEL}' has shape \[24, 16\], expected \[16, 24\]",
    ),
    "not a number": (
        lambda d: change_tensors(d, **{KERNEL: np.full((16, 24), np.nan, np.float32)}),
        f"tensor '{KERNEL}' holds a number that is not finite",
    ),
    "whole numbers for weights": (
        lambda d: change_tensors(d, **{KERNEL: np.ones((16, 24), np.int64)}),
        f"has no tensor '{KERNEL}'",
    ),
    "max pooling": (
        write_json("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}),
        "pooling_mode_max_tokens is True",
    ),
    "two poolings": (
        write_json("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}),
        "are both True, expected one of them",
    ),
    "a dense module": (
        write_json("modules.json", [{"type": "sentence_transformers.models.Dense"}]),
        "has the module 'sentence_transformers.models.Dense', expected Transformer, Pooling, Normalize only",
    ),
    "accents kept": (
        write_json("tokenizer_config.json", {"do_lower_case": True, "strip_accents": False}),
        "strip_accents is False and do_lower_case True",
    ),
    "ideographs not parted": (
        write_json("tokenizer_config.json", {"tokenize_chinese_chars": False}),
        "tokenize_chinese_chars is False",
    ),
}


@pytest.mark.parametrize("what", BREAKAGES)
def test_a_directory_that_is_wrong_is_refused_with_value_and_expectation(tmp_path: Path, what: str) -> None:
    breakage, complaint = BREAKAGES[what]
    breakage(write_encoder(tmp_path))
    with pytest.raises(InputError, match=complaint) as raised:
        read_encoder(str(tmp_path))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


def test_newer_directories_name_their_pooling(tmp_path: Path) -> None:
    write_json("1_Pooling/config.json", {"pooling_mode": "cls"})(write_encoder(tmp_path))
    assert read_encoder(str(tmp_path)).pooling == "cls"


def test_a_cased_encoder_is_read_as_such(tmp_path: Path) -> None:
    write_json("tokenizer_config.json", {"do_lower_case": False})(write_encoder(tmp_path))
    assert not read_encoder(str(tmp_path)).lower_case
