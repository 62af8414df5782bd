"""Behaviour logs -> datasets of query groups, with Apache Beam."""

import warnings

# Google's client libraries, which Beam imports, announce at every start when they will end support of this Python.
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.api_core")
# tensorflow_hub, which TF-Ranking imports, still uses setuptools' pkg_resources, and setuptools says so at every start.
warnings.filterwarnings("ignore", category=UserWarning, message="pkg_resources is deprecated")
