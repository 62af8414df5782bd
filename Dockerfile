# One image a room: docker build --target beam|trainer|serving .
# What a container runs is what the Make targets run: `python -m ...` from the same locked requirements.

FROM python:3.11.14-slim-bookworm AS locked
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TF_CPP_MIN_LOG_LEVEL=3 \
    PYTHONWARNINGS="ignore:You are using a Python version:FutureWarning,ignore:pkg_resources is deprecated:UserWarning" \
    MPLCONFIGDIR=/tmp/matplotlib
WORKDIR /privrank
COPY requirements.txt .
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r requirements.txt \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin privrank \
    && install -d -o privrank -g privrank build
COPY configs configs
COPY protos protos
COPY features features
COPY inference inference
# A volume mounted at build/ takes this owner over; the code itself stays root's, so that no process can change it.
USER 10001:10001

# Logs -> dataset and vocabulary: simulator, beam_jobs.build_elwc, beam_jobs.build_vocabulary.
FROM locked AS beam
COPY simulator simulator
COPY beam_jobs beam_jobs
ENTRYPOINT ["python", "-m"]
CMD ["beam_jobs.build_elwc", "--help"]

# Dataset -> SavedModel.
FROM locked AS trainer
COPY trainer trainer
ENTRYPOINT ["python", "-m", "trainer"]
CMD ["--help"]

# SavedModel -> /rank. The default command has no API keys and ends with exit code 2: whoever runs the image gives
# --settings with api_keys, or --allow-unauthenticated (docs/containers.md).
FROM locked AS serving
COPY serving serving
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=180s --retries=3 \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8000, timeout=2); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "-m", "serving"]
CMD ["--export-dir", "build/demo/run/export", "--host", "0.0.0.0", "--port", "8000"]
