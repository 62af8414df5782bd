# The image of Dataflow's workers and of a Flex Template's launcher: the target `beam` (BASE: or `vocabulary`, which
# build_vocabulary needs) and what Google's service starts.
# LAUNCHER: Google's base image of templates for Python 3.11, of which the launcher's binary alone is taken.
ARG BASE=privrank-beam:1
ARG LAUNCHER=gcr.io/dataflow-templates-base/python311-template-launcher-base:flex_templates_base_image_release_20240628_RC00
FROM apache/beam_python3.11_sdk:2.72.0 AS sdk
# hadolint ignore=DL3006
FROM ${LAUNCHER} AS launcher
# hadolint ignore=DL3006
FROM ${BASE}
COPY --from=sdk /opt/apache/beam /opt/apache/beam
COPY --from=launcher /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher
ENV PYTHONPATH=/privrank \
    FLEX_TEMPLATE_PYTHON_PY_FILE=/privrank/beam_jobs/build_elwc.py
# As Beam's own image: the directories that Dataflow mounts on a worker are root's.
# hadolint ignore=DL3002
USER 0:0
ENTRYPOINT ["/opt/apache/beam/boot"]
