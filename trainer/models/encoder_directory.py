"""Reads the directory of a pretrained BERT-family encoder: config, vocabulary, pooling and weights."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from features.errors import InputError
from trainer.data.tokenizer import SPECIAL_PIECES
from trainer.models.safetensors_file import Array, read_tensors
from trainer.storage.stages import read_file

Pooling = Literal["mean", "cls"]
# what files of BERT-family models hold beside the encoder: heads, which a ranker replaces
UNUSED = ("pooler.", "cls.", "classifier.")
MODULES = ("Transformer", "Pooling", "Normalize")  # of a sentence-transformers directory
REMEDY = "give the directory of a BERT-family encoder as sentence-transformers saves it"


class _FileSection(BaseModel):
    """A JSON file of the directory; keys that the encoder does not need are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class BertConfig(_FileSection):
    """config.json: the sizes of the encoder."""

    model_type: Literal["bert"]  # MiniLM is one
    vocab_size: int = Field(ge=5, le=1_000_000)
    hidden_size: int = Field(ge=1, le=4096)
    num_hidden_layers: int = Field(ge=1, le=96)
    num_attention_heads: int = Field(ge=1, le=128)
    intermediate_size: int = Field(ge=1, le=32_768)
    hidden_act: Literal["gelu"] = "gelu"  # the exact one, by the error function
    layer_norm_eps: float = Field(default=1e-12, gt=0.0, le=1e-2)
    max_position_embeddings: int = Field(ge=4, le=65_536)
    type_vocab_size: int = Field(default=2, ge=2, le=16)
    position_embedding_type: Literal["absolute"] = "absolute"


class TokenizerConfig(_FileSection):
    """tokenizer_config.json: how text is cut."""

    do_lower_case: bool = True
    strip_accents: bool | None = None  # None: as do_lower_case
    tokenize_chinese_chars: Literal[True] = True
    do_basic_tokenize: Literal[True] = True


class PoolingConfig(_FileSection):
    """1_Pooling/config.json: how token states become one embedding."""

    pooling_mode: Pooling | None = None  # newer directories name the mode; older ones have a flag for each
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: Literal[False] = False
    pooling_mode_mean_sqrt_len_tokens: Literal[False] = False
    pooling_mode_weightedmean_tokens: Literal[False] = False
    pooling_mode_lasttoken: Literal[False] = False


@dataclass(frozen=True)
class EncoderDirectory:
    """A pretrained encoder, as read.

    vocabulary: the pieces of vocab.txt, [PAD] [UNK] [CLS] [SEP] moved to the front; the rows of the word embeddings
    are in the same order, so that all models of this project share the ids of the special pieces.
    tensors: float32 arrays by their names in the file, without a leading `bert.`.
    fingerprint: SHA-256 of the files read.
    """

    path: str
    config: BertConfig
    pooling: Pooling
    lower_case: bool
    vocabulary: list[str]
    tensors: dict[str, Array]
    fingerprint: str


def read_encoder(path: str) -> EncoderDirectory:
    """Reads and checks a directory with config.json, vocab.txt and model.safetensors.

    tokenizer_config.json, modules.json and 1_Pooling/config.json are heeded where they are there; without them text is
    lower-cased and states are averaged.
    Errors: InputError naming file, value, expectation and remedy.
    """
    path = path.rstrip("/")
    config = _parsed(f"{path}/config.json", BertConfig)
    if config.hidden_size % config.num_attention_heads:
        raise InputError(
            f"{path}/config.json: hidden_size {config.hidden_size} is no multiple of num_attention_heads "
            f"{config.num_attention_heads}: {REMEDY}"
        )
    order, vocabulary = _vocabulary(f"{path}/vocab.txt", config)
    pooling, lower_case = _pooling(path), _lower_case(f"{path}/tokenizer_config.json")
    tensors = _checked(read_tensors(f"{path}/model.safetensors"), config, f"{path}/model.safetensors")
    words = "embeddings.word_embeddings.weight"
    tensors[words] = tensors[words][order]
    return EncoderDirectory(
        path,
        config,
        pooling,
        lower_case,
        vocabulary,
        tensors,
        _fingerprint(config, pooling, lower_case, vocabulary, tensors),
    )


def expected_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The tensors that an encoder of these sizes has, by name."""
    width, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config.vocab_size, width),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, width),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, width),
    }
    norms, dense = ["embeddings.LayerNorm"], {}
    for index in range(config.num_hidden_layers):
        layer = f"encoder.layer.{index}"
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense[f"{layer}.attention.{part}"] = (width, width)
        dense |= {f"{layer}.intermediate.dense": (inner, width), f"{layer}.output.dense": (width, inner)}
    for name in norms:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for name, shape in dense.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


ModelT = TypeVar("ModelT", bound=_FileSection)


def _json(path: str) -> Any:
    try:
        return json.loads(read_file(path, REMEDY))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}): {REMEDY}") from None


def _parsed(path: str, model: type[ModelT]) -> ModelT:
    try:
        return model.model_validate(_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "content"
        value = "missing" if first["type"] == "missing" else repr(first["input"])[:80]
        raise InputError(f"{path}: {field} is {value}: {first['msg']}; {REMEDY}") from None


def _vocabulary(path: str, config: BertConfig) -> tuple[list[int], list[str]]:
    """The ids of vocab.txt in this project's order, and their pieces."""
    try:
        pieces = [piece.removesuffix("\r") for piece in read_file(path, REMEDY).decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}): {REMEDY}") from None
    if len(pieces) != config.vocab_size:
        raise InputError(
            f"{path} has {len(pieces):,} pieces, "
            f"expected the {config.vocab_size:,} of vocab_size in config.json: {REMEDY}"
        )
    ids = {piece: index for index, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if ids[piece] != index)
        raise InputError(f"{path} has the piece {twice!r} twice, expected each once: {REMEDY}")
    if missing := [piece for piece in SPECIAL_PIECES if piece not in ids]:
        raise InputError(f"{path} has no piece {missing[0]!r}, expected {', '.join(SPECIAL_PIECES)}: {REMEDY}")
    special = [ids[piece] for piece in SPECIAL_PIECES]
    order = special + [index for index in range(len(pieces)) if index not in special]
    return order, [pieces[index] for index in order]


def _lower_case(path: str) -> bool:
    if not tf.io.gfile.exists(path):
        return True
    config = _parsed(path, TokenizerConfig)
    if config.strip_accents not in (None, config.do_lower_case):
        raise InputError(
            f"{path}: strip_accents is {config.strip_accents} and do_lower_case {config.do_lower_case}, expected both "
            "alike: give an encoder that strips accents where it lower-cases"
        )
    return config.do_lower_case


def _pooling(path: str) -> Pooling:
    modules, pooling = f"{path}/modules.json", f"{path}/1_Pooling/config.json"
    if tf.io.gfile.exists(modules):
        listed = _json(modules)
        types = [str(module.get("type")) for module in listed] if _is_list_of_mappings(listed) else [str(listed)]
        if surplus := [name for name in types if name.rpartition(".")[2] not in MODULES]:
            raise InputError(
                f"{modules} has the module {surplus[0][:80]!r}, expected {', '.join(MODULES)} only: {REMEDY}"
            )
    if not tf.io.gfile.exists(pooling):
        return "mean"
    config = _parsed(pooling, PoolingConfig)
    if config.pooling_mode is not None:
        return config.pooling_mode
    if config.pooling_mode_cls_token == config.pooling_mode_mean_tokens:
        raise InputError(
            f"{pooling}: pooling_mode_cls_token and pooling_mode_mean_tokens are both "
            f"{config.pooling_mode_cls_token}, expected one of them: {REMEDY}"
        )
    return "cls" if config.pooling_mode_cls_token else "mean"


def _is_list_of_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, dict) for part in value)


def _checked(tensors: dict[str, Array], config: BertConfig, path: str) -> dict[str, Array]:
    """The encoder's tensors, by their names without `bert.`."""
    named = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    expected = expected_shapes(config)
    if missing := [name for name in expected if name not in named]:
        raise InputError(f"{path} has no tensor {missing[0]!r}, which config.json expects: {REMEDY}")
    if surplus := [name for name in named if name not in expected and not name.startswith(UNUSED)]:
        raise InputError(f"{path} has the tensor {surplus[0][:80]!r}, which config.json does not expect: {REMEDY}")
    for name, shape in expected.items():
        if named[name].shape != shape:
            raise InputError(
                f"{path}: tensor {name!r} has shape {list(named[name].shape)}, expected {list(shape)} by config.json: "
                f"{REMEDY}"
            )
        if not np.isfinite(named[name]).all():
            raise InputError(f"{path}: tensor {name!r} holds a number that is not finite: {REMEDY}")
    return {name: named[name] for name in expected}


def _fingerprint(
    config: BertConfig, pooling: Pooling, lower_case: bool, vocabulary: list[str], tensors: dict[str, Array]
) -> str:
    digest = hashlib.sha256(config.model_dump_json().encode())
    digest.update(json.dumps([pooling, lower_case, vocabulary]).encode())
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].tobytes())
    return digest.hexdigest()
