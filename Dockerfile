# The gateway's image, on a base image without a shell or a package manager. It does not run as root. The binary is that of
# `make build`, built here; or, with BINARY=release, the one that the build context has as linux/amd64/gatehouse, where GoReleaser puts
# it.
#
#   docker build --build-arg VERSION="$(git describe --tags --always --dirty)" -t gatehouse .
ARG BINARY=source

FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS source
WORKDIR /src
ARG TARGETOS
ARG TARGETARCH
# As in the Makefile. VERSION is an argument because the build context has no git history.
ARG VERSION=unknown
ENV CGO_ENABLED=0 GOTOOLCHAIN=local
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    GOOS="$TARGETOS" GOARCH="$TARGETARCH" go build -trimpath -buildvcs=false -tags=nobadger,nomysql,nopgx \
      -ldflags "-s -w -X github.com/caddyserver/caddy/v2.CustomVersion=$VERSION -X github.com/caddyserver/caddy/v2.CustomBinaryName=gatehouse" \
      -o /out/gatehouse ./cmd/gatehouse && \
    GOTAGS=nobadger,nomysql,nopgx scripts/licenses.sh >/out/THIRD-PARTY-LICENSES.txt

FROM scratch AS release
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/gatehouse bin/THIRD-PARTY-LICENSES.txt /out/

FROM $BINARY AS binary
# Certificates and the last configuration are stored here. The directories must belong to the user that the image runs as.
WORKDIR /out/config
WORKDIR /out/data

FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Gatehouse" \
      org.opencontainers.image.description="An API gateway on Caddy: signed requests, fleet-wide rate limits, one contract" \
      org.opencontainers.image.source="https://github.com/gatehouse-gateway/gatehouse" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=binary /out/gatehouse /usr/bin/gatehouse
COPY --from=binary /out/THIRD-PARTY-LICENSES.txt /usr/share/doc/gatehouse/
COPY LICENSE /usr/share/doc/gatehouse/
COPY --from=binary --chown=nonroot:nonroot /out/config /config
COPY --from=binary --chown=nonroot:nonroot /out/data /data
COPY Caddyfile /etc/gatehouse/Caddyfile
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
VOLUME /config /data
EXPOSE 80 443 443/udp
STOPSIGNAL SIGTERM
USER 65532:65532
# Asks the admin API on localhost:2019. A configuration with another address overrides this: gatehouse ready --address.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/bin/gatehouse", "ready"]
ENTRYPOINT ["/usr/bin/gatehouse"]
CMD ["run", "--config", "/etc/gatehouse/Caddyfile", "--adapter", "caddyfile"]
