"""Tokenisation in the graph: the exported model holds the very tokeniser that training used."""

import tensorflow as tf
import tensorflow_text as tf_text

from features.errors import InputError

PAD, UNKNOWN, START, SEPARATOR = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


class Tokeniser(tf.Module):
    """WordPiece over NFKC-normalised, lower-cased text.

    vocabulary: the pieces, ids being their places; begins with [PAD] [UNK] [CLS] [SEP].
    """

    def __init__(self, vocabulary: list[str]) -> None:
        super().__init__(name="tokeniser")
        if vocabulary[:4] != [PAD, UNKNOWN, START, SEPARATOR]:
            raise InputError(f"vocabulary begins with {vocabulary[:4]}, expected {[PAD, UNKNOWN, START, SEPARATOR]}")
        self.size = len(vocabulary)
        self.start_id, self.separator_id = 2, 3
        self._pieces = tf_text.FastBertTokenizer(
            vocab=vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=True
        )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """string [n] -> int32 ragged [n, tokens], without special tokens and not truncated."""
        return self._pieces.tokenize(tf_text.normalize_utf8(text, "NFKC"))

    def side(self, texts: list[tf.Tensor], max_tokens: int) -> tf.Tensor:
        """One side of the encoder's input: each text's tokens and a [SEP], truncated together.

        texts: string [n] each. Returns int32 [n, longest <= max_tokens + 1], 0 behind the last [SEP].
        """
        rows = tf.shape(texts[0])[0]
        separator = tf.RaggedTensor.from_tensor(tf.fill([rows, 1], self.separator_id))
        parts: list[tf.RaggedTensor] = []
        for text in texts:
            parts += [self.tokenize(text), separator]
        tokens = tf.concat(parts[:-1], axis=1)[:, :max_tokens]
        return tf.concat([tokens, separator], axis=1).to_tensor()


def read_vocabulary(content: str) -> list[str]:
    """The pieces of a vocabulary.txt, one a line."""
    return content.rstrip("\n").split("\n")
