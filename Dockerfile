# syntax=docker/dockerfile:1

# The gateway's image: the binary that `make xcaddy` builds, from the plugin list in xcaddy.json, on a base without a
# shell or a package manager, run by a user without rights.
#
#   docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t gatehouse .

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
ARG TARGETOS
ARG TARGETARCH
# The same as in the Makefile; the repository's history is not part of the build context.
ARG VERSION=unknown
ARG GOTAGS=nobadger,nomysql,nopgx
ENV CGO_ENABLED=0 GOTOOLCHAIN=local
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    go -C tools run ./xcaddybuild -config ../xcaddy.json -output /out/gatehouse \
      -os "$TARGETOS" -arch "$TARGETARCH" -tags "$GOTAGS" \
      -ldflags "-s -w -X github.com/caddyserver/caddy/v2.CustomVersion=$VERSION -X github.com/caddyserver/caddy/v2.CustomBinaryName=gatehouse"
# Certificates and the last configuration are kept below these two; they have to belong to the user that runs.
RUN mkdir -p /out/config /out/data

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Gatehouse" \
      org.opencontainers.image.description="An API gateway on Caddy: signed requests, fleet-wide rate limits, one contract" \
      org.opencontainers.image.source="https://github.com/gatehouse-gateway/gatehouse" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /out/gatehouse /usr/bin/gatehouse
COPY --from=build --chown=nonroot:nonroot /out/config /config
COPY --from=build --chown=nonroot:nonroot /out/data /data
COPY Caddyfile /etc/gatehouse/Caddyfile
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
VOLUME /config /data
EXPOSE 80 443 443/udp
STOPSIGNAL SIGTERM
USER nonroot
# No HEALTHCHECK: the base has no program that could ask. Orchestrators ask from outside: /healthz says that the process
# serves requests, /readyz that it can serve signed ones.
ENTRYPOINT ["/usr/bin/gatehouse"]
CMD ["run", "--config", "/etc/gatehouse/Caddyfile", "--adapter", "caddyfile"]
