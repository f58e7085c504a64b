#!/usr/bin/env bash
# Builds commands of cmd/ the one way in which they are released: the same sources,
# Go version, VERSION and COMMIT give the same bytes, wherever and whenever. The
# Dockerfile calls it too, and .ko.yaml has the same flags (a test compares).
# Usage: VERSION=v0.1.0 COMMIT=… hack/build.sh OUTDIR COMMAND...
# GOOS and GOARCH choose the platform.
set -euo pipefail

: "${VERSION:?hack/build.sh: give VERSION and COMMIT; hack/version.sh prints those of a clone}"
: "${COMMIT:?hack/build.sh: give COMMIT, the git commit of the sources}"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."

# -trimpath takes the directory out, -buildvcs=false the state of the clone (which
# a build from an archive or in an image would not have; COMMIT says it instead),
# -s -w symbols that only debuggers read: traces of panics need none of them.
# grpcnotrace leaves out pages of grpc that nobody serves, whose templates keep the
# linker from dropping unused methods: 13 MB of the manager.
# Flags in the builder's environment would be in the bytes as well.
stamp=github.com/phasegate/phasegate/cmd/internal/release
export CGO_ENABLED=0 GOFLAGS='' GOEXPERIMENT='' GOAMD64=v1 GOARM64=v8.0 GOWORK=off
exec "${GO:-go}" build -trimpath -buildvcs=false -tags=grpcnotrace \
	-ldflags="-s -w -X $stamp.version=$VERSION -X $stamp.commit=$COMMIT" \
	-o "$out/" "${@/#/./cmd/}"
