"""Trains teachers and students on ELWC datasets, evaluates them and exports a SavedModel."""

import os
import warnings

# set before TensorFlow is imported, which would otherwise log to the user's terminal
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# raised by tensorflow-hub, which TF-Ranking imports
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
