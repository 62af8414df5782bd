# One image for each thing that is installed: docker build --target beam|vocabulary|trainer|trainer-gpu|serving .
# Each installs its own lock and holds the rooms that it runs: `python -m ...`, as the Make targets run it.
# BASE takes a digest: --build-arg BASE=python:3.11.14-slim-bookworm@sha256:... (docs/containers.md).
# Build secrets, both optional: `pip.conf` with the address of a package index, `index.pem` with its certificates.
ARG BASE=python:3.11.14-slim-bookworm

# hadolint ignore=DL3006
FROM ${BASE} AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    TF_CPP_MIN_LOG_LEVEL=3 \
    PYTHONWARNINGS="ignore:You are using a Python version:FutureWarning,ignore:pkg_resources is deprecated:UserWarning" \
    MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /privrank
# A volume mounted at build/ takes this owner over; the code itself stays root's, so that no process can change it.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin privrank \
    && install -d -o privrank -g privrank build

# Logs -> dataset: simulator, beam_jobs.build_elwc, beam_jobs.compare_datasets. No TensorFlow.
FROM base AS beam
COPY locks/beam.txt locks/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=index.pem \
    pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r locks/beam.txt
COPY configs configs
COPY protos protos
COPY features features
COPY simulator simulator
COPY beam_jobs beam_jobs
USER 10001:10001
ENTRYPOINT ["python", "-m"]
CMD ["beam_jobs.build_elwc", "--help"]

# Dataset -> vocabulary: beam_jobs.build_vocabulary, with the tokeniser of the model. Adds TensorFlow to beam.
FROM beam AS vocabulary
USER 0:0
COPY locks/vocabulary.txt locks/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=index.pem \
    pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r locks/vocabulary.txt
USER 10001:10001
CMD ["beam_jobs.build_vocabulary", "--help"]

# Dataset -> SavedModel.
FROM base AS trainer
COPY locks/trainer.txt locks/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=index.pem \
    pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r locks/trainer.txt
COPY configs configs
COPY protos protos
COPY features features
COPY inference inference
COPY trainer trainer
USER 10001:10001
ENTRYPOINT ["python", "-m", "trainer"]
CMD ["--help"]

# The same on NVIDIA GPUs: CUDA 12.2 is in the lock, the driver (525.60.13 or newer) and the container toolkit on the host.
# The driver compiles kernels at the first start for GPUs that the packages hold no code for, and caches them in the volume.
FROM base AS trainer-gpu
COPY locks/trainer-gpu.txt locks/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=index.pem \
    pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r locks/trainer-gpu.txt
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_PATH=/privrank/build/cuda-cache \
    CUDA_CACHE_MAXSIZE=4294967296
COPY configs configs
COPY protos protos
COPY features features
COPY inference inference
COPY trainer trainer
USER 10001:10001
ENTRYPOINT ["python", "-m", "trainer"]
CMD ["--help"]

# SavedModel -> /rank. The default command has no API keys and ends with exit code 2: whoever runs the image gives
# --settings with api_keys, or --allow-unauthenticated (docs/containers.md).
FROM base AS serving
COPY locks/serving.txt locks/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=index.pem \
    pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r locks/serving.txt
COPY configs configs
COPY protos protos
COPY features features
COPY inference inference
COPY serving serving
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=180s --retries=3 \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=2); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "-m", "serving"]
CMD ["--export-dir", "build/demo/run/export", "--host", "0.0.0.0", "--port", "8000"]
