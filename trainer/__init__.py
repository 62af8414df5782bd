"""ELWC -> teachers -> student -> SavedModel."""

import os
import warnings

# before TensorFlow is imported: a user's terminal is not its log
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TF-Ranking imports tensorflow-hub, which uses it
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
