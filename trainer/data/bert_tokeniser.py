"""BERT's own tokenisation in the graph, for pretrained encoders."""

import tensorflow as tf
import tensorflow_text as tf_text

from trainer.data.tokenizer import WordPieceTokeniser

# Ideographs, each a word of its own. Source: BERT's BasicTokenizer.
IDEOGRAPHS = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}"
    r"\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
STANDS_ALONE = rf"([\p{{P}}{IDEOGRAPHS}])"
CONTROL = r"[\p{Cc}\p{Cf}\p{Co}\x{FFFD}]"
LONG_WORD = r"[^\x00-/:-@\[-`{-~]{101,}"  # between ASCII spaces and punctuation: more characters than a word may have


class BertTokeniser(WordPieceTokeniser):
    """WordPiece after BERT's BasicTokenizer: same pieces as Hugging Face's BertTokenizer, except for special pieces
    spelt out in a text, which are text here.

    FastBertTokenizer's own `lower_case_nfd_strip_accents` also folds compatibility characters (two for a superscript
    two), which BERT does not; so the text is normalised before it.
    """

    max_word_bytes = 400  # a word of 100 characters, the most that BERT cuts into pieces

    def __init__(self, vocabulary: list[str], lower_case: bool) -> None:
        super().__init__(vocabulary, lower_case=False)
        self._strips = lower_case
        known = {piece[:1] for piece in vocabulary}
        # a letter that starts no piece: takes the place of a word that is too long, and becomes [UNK]
        self._unknown = next(letter for letter in map(chr, range(0x12000, 0x123FF)) if letter not in known)

    def normalised(self, text: tf.Tensor) -> tf.Tensor:
        """Source: BasicTokenizer of Devlin et al. 2019: clean, strip accents, lower-case, part punctuation."""
        text = tf.strings.regex_replace(text, r"[\t\n\r]", " ")
        text = tf.strings.regex_replace(text, CONTROL, "")
        if self._strips:
            text = tf_text.normalize_utf8(text, "NFD")
            text = tf.strings.regex_replace(text, r"\p{Mn}", "")
            text = tf.strings.regex_replace(text, "Σ", "σ")  # lower-casing by ICU gives it two forms, by its place
            text = tf.strings.lower(text, encoding="utf-8")
        text = tf.strings.regex_replace(text, r"\p{Z}", " ")
        text = tf.strings.regex_replace(text, STANDS_ALONE, r" \1 ")
        return tf.strings.regex_replace(text, LONG_WORD, self._unknown)
