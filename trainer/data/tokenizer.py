"""Tokenisation in the graph, so that the exported model contains the tokeniser of training."""

import tensorflow as tf
import tensorflow_text as tf_text

from features.errors import InputError

SPECIAL_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]  # the first of every vocabulary


class WordPieceTokeniser(tf.Module):
    """WordPiece over NFKC-normalised, lower-cased text.

    vocabulary: the pieces, in the order of their ids; begins with [PAD] [UNK] [CLS] [SEP].
    """

    max_word_bytes = 100  # a longer word is [UNK]

    def __init__(self, vocabulary: list[str], lower_case: bool = True) -> None:
        super().__init__(name="tokeniser")
        if vocabulary[:4] != SPECIAL_PIECES:
            raise InputError(f"vocabulary begins with {vocabulary[:4]}, expected {SPECIAL_PIECES}")
        self.size = len(vocabulary)
        self.start_id, self.separator_id = 2, 3
        self._pieces = tf_text.FastBertTokenizer(
            vocab=vocabulary,
            token_out_type=tf.int32,
            lower_case_nfd_strip_accents=lower_case,
            max_bytes_per_word=self.max_word_bytes,
        )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """string [n] -> int32 ragged [n, tokens], without special tokens and not truncated."""
        return self._pieces.tokenize(self.normalised(text))

    def normalised(self, text: tf.Tensor) -> tf.Tensor:
        """What is done to texts, string [n], before they are cut."""
        return tf_text.normalize_utf8(text, "NFKC")

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
