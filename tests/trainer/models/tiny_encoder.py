"""Writes the directory of a tiny encoder with random weights, as sentence-transformers would."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.trainer.shop import PIECES
from trainer.models.encoder_directory import BertConfig, expected_shapes

# special pieces where BERT's vocabulary has them: [PAD] first, the others after unused ones
VOCABULARY = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES[4:]]
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 96,
    "type_vocab_size": 2,
}


def random_tensors(seed: int = 3, **changes: Any) -> dict[str, np.ndarray]:
    """Every tensor of an encoder; gains around 1."""
    generator = np.random.default_rng(seed)
    shapes = expected_shapes(BertConfig.model_validate({**CONFIG, **changes}))
    return {
        name: generator.normal(float(name.endswith("LayerNorm.weight")), 0.3, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_encoder(directory: Path, tensors: dict[str, np.ndarray] | None = None, **changes: Any) -> Path:
    """changes: to config.json. Returns the directory."""
    directory.mkdir(exist_ok=True, parents=True)
    (directory / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    save_file(random_tensors(**changes) if tensors is None else tensors, directory / "model.safetensors")
    return directory
