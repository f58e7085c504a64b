#!/usr/bin/env bash
# Leaves in dist/ what is published of this checkout: programs for each platform,
# bills of materials, images, chart, CRDs, krew manifest, notes, checksums.
# VERSION: by default the tag of the commit, else a pseudo version (hack/version.sh).
# DIRTY=1 allows changes that are not committed; such a release cannot be made again.
# Usage: hack/release.sh [images]    images: only those
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "hack/release.sh: $*" >&2; exit 1; }

changes=$(git status --porcelain)
if [ -n "$changes" ] && [ "${DIRTY:-}" != 1 ]; then
	die "the checkout has changes that are not committed (DIRTY=1 releases them all the same):"$'\n'"$changes"
fi
stamps=$(hack/version.sh)
# shellcheck disable=SC2086 # three assignments
export $stamps
echo "Phasegate $VERSION, commit $COMMIT, $(${GO:-go} env GOVERSION)"

# A version that a person gave is in the sources as well, or users of the
# repository and of the archive would have different images.
if ! [[ $VERSION =~ [.-][0-9]{14}-[0-9a-f]{12}|-dirty$ ]]; then
	for key in version appVersion; do
		grep -qx "$key: ${VERSION#v}" charts/phasegate/Chart.yaml || die "charts/phasegate/Chart.yaml has another $key than ${VERSION#v}: change it, commit, tag again"
	done
	stale=$(grep 'image: ghcr.io/phasegate/' charts/phasegate/Chart.yaml | grep -v ":${VERSION#v}$") && die "charts/phasegate/Chart.yaml names images of another release than ${VERSION#v}:"$'\n'"$stale"
fi

dist=$PWD/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$dist"

programs=(manager kubectl-phasegate proxyrunner)
build() {
	echo "building for $1/$2"
	GOOS=$1 GOARCH=$2 hack/build.sh "$work/built/$1_$2" "${programs[@]}"
}
publish() { "$work/release" --root "$PWD" --built "$work/built" --dist "$dist" "$1"; }

(cd hack/release && GOFLAGS='' GOWORK=off ${GO:-go} build -buildvcs=false -o "$work/release" .)
[ "${1:-}" = images ] || publish notes >/dev/null
build linux amd64
build linux arm64
if [ "${1:-}" = images ]; then
	publish images
	cat "$dist/images.txt"
	exit
fi

build darwin amd64
build darwin arm64
rm -rf "$dist"
hack/chart.sh "$dist"
publish images
publish pack
publish check
(cd "$dist" && ls -sh1 && echo && cat images.txt)
