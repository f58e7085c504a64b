#!/usr/bin/env bash
# Builds the pinned developer tools of hack/tools/go.mod and links them into bin/tools.
# The binaries live in the user's cache, keyed by what pins them, so that a second clone starts at once.
# Usage: hack/tools.sh controller-gen|golangci-lint...
set -euo pipefail
cd "$(dirname "$0")/.."

key=$( (cat hack/tools/go.mod hack/tools/go.sum; go version) | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/phasegate/devtools/$key
mkdir -p "$cache" bin/tools

package() {
	case $1 in
	controller-gen) echo sigs.k8s.io/controller-tools/cmd/controller-gen ;;
	golangci-lint) echo github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
	*) echo "hack/tools.sh: unknown tool $1: add it here and to hack/tools/go.mod" >&2; exit 2 ;;
	esac
}

for tool in "$@"; do
	pkg=$(package "$tool")
	if [ ! -x "$cache/$tool" ]; then
		echo "building $tool (a minute or so, once)" >&2
		# Built aside and moved, so that two makes at once never see half a binary.
		tmp=$(mktemp "$cache/.$tool.XXXXXX")
		(cd hack/tools && CGO_ENABLED=0 go build -trimpath -o "$tmp" "$pkg")
		mv "$tmp" "$cache/$tool"
	fi
	ln -sf "$cache/$tool" "bin/tools/$tool"
done
