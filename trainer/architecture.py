"""The architecture of rankers: the `student:` section, and how a teacher's follows from it."""

from typing import Any

from pydantic import Field, model_validator

from features.task import Section

SCRATCH_ONLY = ("layers", "width", "heads", "feed_forward")  # of an encoder that is trained from scratch
PRETRAINED_ONLY = ("keep_layers", "freeze")


class InteractionConfig(Section):
    """Attention among a query group's items before the score head; see trainer/models/document_attention.py."""

    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=2, ge=1)
    width: int = Field(default=32, ge=1)  # of each head
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)


class StudentConfig(Section):
    """The ranker's architecture, the teachers' too; see trainer/models/.

    With `pretrained` the encoder's directory says layers, width, heads and feed_forward; they may be null then.
    """

    layers: int = Field(default=2, ge=0, le=48)  # 0: no encoder; the head sees only shares of matched tokens
    width: int = Field(default=64, ge=8, le=4096)
    heads: int = Field(default=4, ge=1, le=64)
    feed_forward: int = Field(default=256, ge=8)  # width of a layer's inner projection
    split_layers: int = Field(default=0, ge=0)  # lowest layers that run on query and item apart; pretrained: or all
    pretrained: str | None = None  # directory of a BERT-family encoder to start from; None: trained from scratch
    keep_layers: tuple[int, ...] | None = None  # of the pretrained encoder, ascending from 0; None: all
    freeze: int = Field(default=0, ge=0)  # lowest kept layers that are not trained, nor the embeddings; 0: all train
    max_context_tokens: int = Field(default=16, ge=1, le=512)  # WordPiece tokens of the query side
    max_item_tokens: int = Field(default=40, ge=1, le=2048)  # WordPiece tokens of an item's side
    hidden: tuple[int, ...] = (64,)  # widths of the score head's hidden layers; an MLP where a spec has no text
    interaction: InteractionConfig | None = None  # None: each item is scored by itself
    category_width: int = Field(default=8, ge=1)  # width of a categorical feature's embedding

    @model_validator(mode="after")
    def _consistent(self) -> "StudentConfig":
        if self.pretrained is not None:
            self._check_pretrained()
            return self
        if self.keep_layers is not None or self.freeze:
            raise ValueError("keep_layers and freeze need `pretrained`: name an encoder's directory, or remove them")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.layers and self.split_layers > self.layers - 1:
            raise ValueError(f"split_layers {self.split_layers} must leave one joint layer of layers {self.layers}")
        return self

    def _check_pretrained(self) -> None:
        if given := [name for name in SCRATCH_ONLY if name in self.model_fields_set]:
            raise ValueError(
                f"{given[0]} comes with the pretrained encoder: remove it, set it to null, or set pretrained to null"
            )
        if self.keep_layers is None:
            return
        kept = list(self.keep_layers)
        if not kept or kept[0] < 0 or kept != sorted(set(kept)):
            raise ValueError(f"keep_layers is {kept}, expected layers of the encoder, each once, ascending from 0")
        for name, value in (("split_layers", self.split_layers), ("freeze", self.freeze)):
            if value > len(kept):
                raise ValueError(f"{name} {value} must be at most {len(kept)}, the number of keep_layers")


def overridden(architecture: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """An architecture with another's values over its own.

    An override that names `pretrained` chooses another encoder, so that the former one's settings are dropped.
    """
    if "pretrained" in override:
        former = (*SCRATCH_ONLY, *PRETRAINED_ONLY, "split_layers")
        architecture = {key: value for key, value in architecture.items() if key not in former}
    result = {**architecture, **override}
    if result.get("pretrained") is None:
        return result
    return {key: value for key, value in result.items() if key not in SCRATCH_ONLY or value is not None}
