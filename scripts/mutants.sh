#!/bin/sh
# Applies known defects to the rate limiter, one at a time, and checks that the tests find each of them.
#
#   scripts/mutants.sh [PATCH ...]      by default ratelimit/testdata/mutants/*.patch
#
# A patch is a unified diff against the root of the repository that changes no test. Its first line describes the defect. The
# simulation runs first, with SEEDS seeds, by default 3000. If it finds nothing, the tests of ratelimit/internal run. Without
# a patch, both must pass.
#
# Patches are applied to a copy of the tracked files of the working directory.
set -eu

SEEDS=${SEEDS:-3000}

cd "$(dirname "$0")/.."
[ "$#" -gt 0 ] || set -- ratelimit/testdata/mutants/*.patch

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
log=$work/log
mkdir "$work/copy"
git ls-files -z | tar --null --files-from=- --ignore-failed-read -cf - 2>"$work/missing" | tar -C "$work/copy" -xf -

# tests ARGUMENT ...: runs go test in the copy.
tests() {
	(cd "$work/copy" && go test -vet=off -count=1 -failfast ${GOTAGS:+-tags="$GOTAGS"} "$@") >"$log" 2>&1
}

# simulation begins with few seeds, because its subtests go on after a failure.
simulation() {
	for seeds in 100 1000 "$SEEDS"; do
		if [ "$seeds" -le "$SEEDS" ]; then
			GATEHOUSE_SIM_SEEDS=$seeds tests -run '^TestSimulation$' ./ratelimit || return
		fi
	done
}

# failure: prints the lowest failing seed and its error, or the panic.
failure() {
	awk '
		/Received unexpected error:/ { getline; sub(/^[ \t]+/, ""); reason = $0 }
		/GATEHOUSE_SIM_SEED=[0-9]/ {
			sub(/.*GATEHOUSE_SIM_SEED=/, "")
			if (seed == "" || $1 + 0 < seed) { seed = $1 + 0; first = reason }
		}
		/^(panic|fatal error): / && other == "" { other = $0 }
		END { if (seed != "") print ", seed " seed ": " first; else print ": " (other == "" ? "no reason given" : other) }
	' "$log"
}

unset GATEHOUSE_SIM_SEED
if ! simulation || ! tests ./ratelimit/internal/...; then
	echo "the tests fail without any mutant:" >&2
	cat "$log" >&2
	exit 1
fi
missed=0
for file; do
	name=$(basename "$file" .patch)
	if ! patch -d "$work/copy" -s -f -p1 <"$file" >"$log" 2>&1; then
		echo "$name: DOES NOT APPLY"
		cat "$log"
		exit 1
	fi
	if ! (cd "$work/copy" && go build ${GOTAGS:+-tags="$GOTAGS"} ./ratelimit/...) >"$log" 2>&1; then
		echo "$name: DOES NOT COMPILE"
		cat "$log"
		exit 1
	fi
	if ! simulation; then
		echo "$name: found by simulation$(failure)"
	elif ! tests ./ratelimit/internal/...; then
		echo "$name: found by $(sed -n 's/^--- FAIL: \([^ ]*\).*/\1/p' "$log" | head -n 1)"
	else
		echo "$name: NOT FOUND"
		missed=$((missed + 1))
	fi
	patch -d "$work/copy" -s -f -R -p1 <"$file"
done
if [ "$missed" -gt 0 ]; then
	echo "$missed of $# mutants not found" >&2
	exit 1
fi
echo "all $# mutants found"
