"""Learns a WordPiece vocabulary; words are split exactly as by the model's tokeniser. No Beam.

The model normalises text by NFKC and then by `tensorflow_text.FastBertTokenizer(lower_case_nfd_strip_accents=True)`:
lower-cased, accents removed, split at white space, punctuation and CJK characters. The first pieces are [PAD] (id 0),
[UNK], [CLS] and [SEP].
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from beam_jobs.joins.dataset_options import VocabularyOptions
from features.errors import InputError

try:
    import tensorflow as tf
    import tensorflow_text as tf_text
    from tensorflow_text.python.ops.bert_tokenizer import BasicTokenizer
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner
except ModuleNotFoundError as problem:
    raise InputError(
        f"cannot learn a vocabulary ({problem}), expected TensorFlow Text beside Beam: "
        "use the image `vocabulary`, or install locks/vocabulary.txt"
    ) from None

RESERVED_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_BATCH_TEXTS = 4096
_ENOUGH_PIECES = 0.95  # share of the requested pieces at which the search stops


class WordSplitter:
    """Splits texts into the tokeniser's words."""

    def __init__(self) -> None:
        self._normalizer = tf_text.FastBertNormalizer(lower_case_nfd_strip_accents=True)
        self._splitter = BasicTokenizer(lower_case=False)

    def count(self, texts: Mapping[str, int]) -> Counter[str]:
        """Counts words. texts: text -> number of occurrences. Returns word -> number of occurrences."""
        words: Counter[str] = Counter()
        entries = list(texts.items())
        for start in range(0, len(entries), _BATCH_TEXTS):
            batch = entries[start : start + _BATCH_TEXTS]
            for row, (_, frequency) in zip(self.split([text for text, _ in batch]), batch, strict=True):
                for word in row:
                    words[word] += frequency
        return words

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text."""
        composed = tf_text.normalize_utf8(tf.constant(texts, dtype=tf.string), "NFKC")
        words = self._splitter.tokenize(self._normalizer.normalize(composed))
        return [[word.decode("utf-8", "replace") for word in row] for row in words.to_list()]


def learn_pieces(words: Mapping[str, int], options: VocabularyOptions) -> list[str]:
    """The vocabulary: reserved pieces, then single characters, then other pieces by descending frequency.

    words: word -> count. Without words, only the reserved pieces.
    Errors: InputError when the characters alone need more than `options.pieces`.
    """
    frequent = sorted((word, count) for word, count in words.items() if count >= options.min_count)
    short = learner.get_input_words(frequent, RESERVED_PIECES, options.max_word_characters)
    alphabet = learner.get_allowed_chars(short, options.max_alphabet)
    counts = learner.filter_input_words(short, alphabet, -1)
    if not counts:
        return list(RESERVED_PIECES)
    required = len(RESERVED_PIECES) + 2 * len(learner.extract_char_tokens(counts))
    if required > options.pieces:
        raise InputError(
            f"vocabulary.pieces is {options.pieces}, expected at least {required}: the text has {len(alphabet)} "
            "characters. Raise it, or lower vocabulary.max_alphabet"
        )
    return _search(counts, options)


def _search(counts: Sequence[tuple[str, int]], options: VocabularyOptions) -> list[str]:
    """Searches the count threshold that gives the largest vocabulary within `options.pieces`.

    Word counts fall like 1 / rank, so bisecting the threshold's logarithm takes a third of the steps.
    """
    lowest, highest = 1, max(count for _, count in counts) + 1
    best: list[str] = []
    while lowest <= highest:
        threshold = max(lowest, math.isqrt(lowest * highest))
        pieces = learner.learn_with_thresh(counts, threshold, _parameters(options))
        print(f"  {len(pieces):,} pieces (pairs merged down to {threshold:,} occurrences)", flush=True)
        if len(pieces) > (2 - _ENOUGH_PIECES) * options.pieces:
            lowest = threshold + 1
            continue
        best = max(best, _without_rarest(pieces, options.pieces), key=len)
        if len(best) >= _ENOUGH_PIECES * options.pieces:
            break
        highest = threshold - 1
    return best


def _without_rarest(pieces: list[str], size: int) -> list[str]:
    """The `size` most frequent pieces; keeps all single characters, so that every word can be split."""
    excess = len(pieces) - size
    multi_character = [piece for piece in pieces[len(RESERVED_PIECES) :] if len(piece.removeprefix("##")) > 1]
    dropped = set(multi_character[max(0, len(multi_character) - excess) :]) if excess > 0 else set[str]()
    return [piece for piece in pieces if piece not in dropped]


def _parameters(options: VocabularyOptions) -> learner.Params:
    return learner.Params(
        upper_thresh=None,
        lower_thresh=None,
        num_iterations=4,
        max_input_tokens=-1,
        max_token_length=options.max_word_characters,
        max_unique_chars=options.max_alphabet,
        vocab_size=options.pieces,
        slack_ratio=0.0,
        include_joiner_token=True,
        joiner="##",
        reserved_tokens=list(RESERVED_PIECES),
    )
