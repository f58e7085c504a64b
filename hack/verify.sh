#!/usr/bin/env bash
# Checks what a compiler cannot: that generated files are those of the sources,
# that each go.mod is tidy, that imports go one way, that the linter refuses the
# writes that it is there to refuse, and that the documents name only make targets
# that exist. It compares with a copy, not with git, so that a
# tree with uncommitted work can be verified; what it regenerates stays.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() { echo "verify: $*" >&2; failed=1; }

# generated_files lists, by NUL, whatever hack/generate.sh may write.
generated_files() { find api charts/phasegate/files charts/phasegate/README.md docs/machines docs/extend/builtin-actions.md docs/operate/rights.md docs/reference/cli.md -type f \( -name 'zz_generated.*' -o -name '*.schema.json' -o -path 'charts/*' -o -path 'docs/*' \) -print0; }

check_generated() {
	local before
	before=$(mktemp -d)
	generated_files | xargs -0 cp --parents -t "$before"
	hack/generate.sh
	local after
	after=$(mktemp -d)
	generated_files | xargs -0 cp --parents -t "$after"
	diff -ru "$before" "$after" || complain "generated files were stale: they are regenerated now, commit them"
	rm -rf "$before" "$after"
}

check_tidy() {
	local mod
	while read -r mod; do
		(cd "$(dirname "$mod")" && go mod tidy -diff) || complain "$mod is not tidy: run go mod tidy in $(dirname "$mod")"
	done < <(find . -name go.mod -not -path './bin/*' -not -path './.*/*')
}

# The import rules are written once, in .golangci.yml.
check_imports() {
	bin/tools/golangci-lint run --enable-only depguard ./... || complain "imports go the wrong way: see docs/architecture.md"
}

# check_forbidden compares what the linter says of a file full of mistakes with the
# lines that are marked in it: a rule that does not match any more is silent.
check_forbidden() {
	local dir=controllers/patch/testdata/forbidden
	diff <(grep -n '// forbidden$' $dir/forbidden.go | cut -d: -f1) \
		<(bin/tools/golangci-lint run --enable-only forbidigo ./$dir | sed -nE "s#^$dir/forbidden.go:([0-9]+):.*#\1#p" | sort -nu) ||
		complain "the linter and the marks in $dir/forbidden.go disagree about these lines (< marked, > found): see forbidigo in .golangci.yml"
}

# check_targets compares `make x` in the documents with what make knows.
check_targets() {
	local known name
	known=$(sed -nE 's/^([a-z][a-z0-9-]*):.*/\1/p' Makefile test/cluster/cluster.mk | sort -u)
	for name in help build test test-all test-unit lint verify generate tools cluster-up cluster-down cluster-reload install run demo bench e2e faults fuzz clean; do
		grep -qx "$name" <<<"$known" || complain "the Makefile lacks the target $name, which scripts rely on"
	done
	while IFS=: read -r file name; do
		grep -qx "$name" <<<"$known" || complain "$file speaks of make $name, which does not exist"
	done < <(grep -oHE '(^|`|&& )make [a-z0-9-]+( [a-z0-9-]+)*' README.md CONTRIBUTING.md docs/*.md docs/extend/*.md docs/tutorials/*.md | sed -E 's/[`&]//g; s/: *make /:/' |
		awk -F: '{n = split($2, w, " "); for (i = 1; i <= n; i++) print $1 ":" w[i]}')
}

check_generated
check_tidy
check_imports
check_forbidden
check_targets
exit $failed
