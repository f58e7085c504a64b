# syntax=docker/dockerfile:1

# The images manager, kubectl-phasegate and proxyrunner, one target each:
#   eval "$(hack/version.sh | sed 's/^/export /')"
#   docker buildx build --platform linux/amd64,linux/arm64 --target manager \
#     --build-arg VERSION --build-arg COMMIT -t ghcr.io/phasegate/manager:${VERSION#v} .
# The program in an image has the bytes of the released one, if GO_IMAGE has the Go
# version of the release. Both images below may be given by digest.
ARG GO_IMAGE=docker.io/library/golang:1.26.8
ARG BASE_IMAGE=scratch
ARG VERSION=dev
ARG COMMIT=unknown

# Cross-compiled: no emulator runs.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION
ARG COMMIT
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} hack/build.sh /out manager kubectl-phasegate proxyrunner

# Nothing but the program is in an image: it links no library, brings the
# certificates of public authorities (cmd/internal/roots), writes no file, and runs
# as any user; numeric, so that the kubelet can tell that it is not root.
FROM ${BASE_IMAGE} AS base
ARG VERSION
ARG COMMIT
USER 65532:65532
WORKDIR /
LABEL org.opencontainers.image.source="https://github.com/phasegate/phasegate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"

FROM base AS proxyrunner
COPY --from=build /out/proxyrunner /proxyrunner
ENTRYPOINT ["/proxyrunner"]
LABEL org.opencontainers.image.title="proxyrunner" \
      org.opencontainers.image.description="The proxy in front of an MCP server on Kubernetes, as Phasegate's manager starts it"

FROM base AS kubectl-phasegate
COPY --from=build /out/kubectl-phasegate /kubectl-phasegate
ENTRYPOINT ["/kubectl-phasegate"]
LABEL org.opencontainers.image.title="kubectl-phasegate" \
      org.opencontainers.image.description="Checks, explains and steers Phasegate's state machines"

# The last is what a build without --target makes.
FROM base AS manager
COPY --from=build /out/manager /manager
ENTRYPOINT ["/manager"]
LABEL org.opencontainers.image.title="manager" \
      org.opencontainers.image.description="Phasegate's controllers: state machines that migrate Calico's datastore and run MCP servers"
