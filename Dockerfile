# One image a program: docker build --target <program> .
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY pkg/ pkg/
COPY provisioner/ provisioner/
COPY extender/ extender/
COPY virtualnode/ virtualnode/
COPY remoteagent/ remoteagent/
COPY deploy/ deploy/
COPY mover/ mover/
COPY network/ network/
ARG TARGETOS TARGETARCH
ARG VERSION=v0.0.0-dev COMMIT=unknown
RUN for program in provisioner extender virtualnode remote-agent mover network; do \
      CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
        -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$VERSION -X k8s.io/component-base/version.gitCommit=$COMMIT" \
        -o /out/lodestone-$program "./$(echo $program | tr -d -)" || exit 1; \
    done

# Restic, which movers use where an object store carries content: of its own module.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS restic
WORKDIR /src
COPY mover/content/restic/program/ ./
ARG TARGETOS TARGETARCH
# Without gRPC for Google Cloud, as in restic's own builds.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags disable_grpc_modules -ldflags "-s -w" -o /out/ tool

# Nothing but CA certificates, time zones and a user: no shell, no packages.
FROM gcr.io/distroless/static-debian12:nonroot AS base
USER 65532:65532

FROM base AS provisioner
COPY --from=build /out/lodestone-provisioner /lodestone-provisioner
ENTRYPOINT ["/lodestone-provisioner"]

FROM base AS extender
COPY --from=build /out/lodestone-extender /lodestone-extender
ENTRYPOINT ["/lodestone-extender"]

FROM base AS virtualnode
COPY --from=build /out/lodestone-virtualnode /lodestone-virtualnode
ENTRYPOINT ["/lodestone-virtualnode"]

FROM base AS remote-agent
COPY --from=build /out/lodestone-remote-agent /lodestone-remote-agent
ENTRYPOINT ["/lodestone-remote-agent"]

FROM base AS network
COPY --from=build /out/lodestone-network /lodestone-network
ENTRYPOINT ["/lodestone-network"]

# The mover runs rsync and restic, as root: nobody else may write what other users own.
FROM debian:bookworm-slim AS mover
RUN apt-get update && apt-get install -y --no-install-recommends rsync ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=restic /out/restic /usr/bin/restic
COPY --from=build /out/lodestone-mover /lodestone-mover
USER 0:0
ENTRYPOINT ["/lodestone-mover"]
