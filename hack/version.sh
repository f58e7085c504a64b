#!/usr/bin/env bash
# Prints what a build of this checkout is stamped with, as assignments for a shell:
# VERSION (kept if it is given), COMMIT, and SOURCE_DATE_EPOCH, the time of the
# commit in seconds, which is the time of everything in an archive.
# A commit without a tag gets the version that the go command would give it, later
# than the last tag and before the next; what is not committed adds -dirty.
set -euo pipefail
cd "$(dirname "$0")/.."

pseudo() {
	local stamp last
	stamp=$(TZ=UTC0 git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd)-$(git rev-parse HEAD | cut -c1-12)
	last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || last=
	case $last in
	'') echo "v0.0.0-$stamp" ;;
	*-*) echo "$last.0.$stamp" ;;
	*) echo "${last%.*}.$((${last##*.} + 1))-0.$stamp" ;;
	esac
}

if [ -z "${VERSION:-}" ]; then
	VERSION=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null) || VERSION=$(pseudo)
	[ -z "$(git status --porcelain)" ] || VERSION=$VERSION-dirty
fi
# It becomes the version of the chart, which takes no v, and the tag of images.
if ! [[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "hack/version.sh: VERSION $VERSION is not one: give v1.2.3 or v1.2.3-rc.1" >&2
	exit 2
fi

echo "VERSION=$VERSION"
echo "COMMIT=$(git rev-parse HEAD)"
echo "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)"
