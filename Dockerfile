# One image for every program of outbox-relay: `python -m outbox_relay`, `python -m reconciler`, `outbox ...`.
# Needs nothing writable: run it with a read-only root. Any non-root user id works.

FROM python:3.13-slim-trixie AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# The locked dependencies first: they change more rarely than the code. Only wheels, each with its hash.
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python3 -m venv /opt/outbox \
 && /opt/outbox/bin/pip install --require-hashes --only-binary :all: -r requirements/runtime.txt \
 && python3 -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.txt

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY schemas schemas
COPY connectors connectors
COPY reconciler reconciler
COPY outbox_relay outbox_relay
RUN /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
 && /opt/outbox/bin/pip install --no-deps --no-index /wheel/*.whl \
 && /opt/outbox/bin/python -m compileall -q /opt/outbox/lib \
 && /opt/outbox/bin/pip uninstall -y pip


FROM python:3.13-slim-trixie

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="outbox-relay" \
      org.opencontainers.image.description="A durable ledger for actions on the outside world" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY --from=build /opt/outbox /opt/outbox

ENV PATH=/opt/outbox/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OUTBOX_LISTEN=0.0.0.0:9464 \
    OUTBOX_LOG_FORMAT=json

# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /opt/outbox
EXPOSE 9464
STOPSIGNAL SIGTERM

# Liveness only: a dependency that is down is no reason to restart. Jobs that end (migrate) never reach it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['OUTBOX_LISTEN'].rpartition(':')[2] + '/livez', timeout=2)"]

CMD ["python3", "-m", "outbox_relay"]
