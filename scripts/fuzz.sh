#!/bin/sh
# Fuzzes every Fuzz target of the module in the working directory.
#
#   scripts/fuzz.sh FUZZTIME [PACKAGE ...]      FUZZTIME as of go test -fuzztime: 5s, 10m, 100000x
#
# FUZZCACHE is where inputs that found something new are kept; by default that is Go's cache, where `go test -fuzz` finds
# them too. If it is empty they are forgotten, so that a short run spends its time on new inputs, not on the old ones.
#
# With UNGUIDED=yes, targets are built without the fuzzer's instrumentation, and nothing guides the mutation of their seeds. That is
# for short runs: a guided one spends its first seconds, and minutes of compiling, before it tries anything new.
#
# Each package is built once, and its targets are the ones that the test binary lists.
# A failing input is written to the package's testdata/fuzz, to be committed with the fix.
#
# LANES is how many packages are fuzzed at a time, by default 1, whose targets then have all processors to themselves; with
# more each target has one.
set -eu

# one PACKAGE: what a lane does.
one() {
	package=$1
	module=$(go list -m)
	work=$(mktemp -d)
	cache=${FUZZCACHE-$(go env GOCACHE)/fuzz}
	cache=${cache:-$work/cache}
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	dir=$(go list -f '{{.Dir}}' "$package")
	binary=$work/$(basename "$package").test
	guide=-fuzz=.
	[ -z "${UNGUIDED-}" ] || guide=
	workers=
	[ "${LANES:-1}" = 1 ] || workers=-test.parallel=1
	go test -c $guide -vet=off ${GOTAGS:+-tags="$GOTAGS"} -o "$binary" "$package"
	failed=
	for target in $(cd "$dir" && "$binary" -test.list '^Fuzz'); do
		name=${package#"$module"/}.$target
		if (cd "$dir" && "$binary" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$FUZZTIME" $workers \
			-test.fuzzminimizetime=5s -test.fuzzcachedir="$cache/$package" -test.timeout=0) >"$work/log" 2>&1; then
			echo "ok    $name  $(sed -n 's/^fuzz: elapsed: //p' "$work/log" | tail -n 1)"
		elif ! grep -q -e 'Failing input written' -e 'panic' -e 'failure while' "$work/log" &&
			[ "$(grep -A 1 -e '^--- FAIL' "$work/log" | tail -n 1)" = '    context deadline exceeded' ]; then
			# Until Go 1.27 the end of the time may be reported as a failure (https://go.dev/issue/75804).
			echo "ok    $name  $(sed -n 's/^fuzz: elapsed: //p' "$work/log" | tail -n 1)"
		else
			failed=yes
			{ echo "FAIL  $name" && sed 's/^/      /' "$work/log"; } >"$work/failure"
			cat "$work/failure"
		fi
	done
	[ -z "$failed" ]
}

if [ "$1" = --one ]; then
	one "$2"
	exit
fi

export FUZZTIME="$1"
shift
if [ "$#" -gt 0 ]; then
	packages=$(go list "$@")
else
	module=$(go list -m)
	packages=$(find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune -o \
		-name '*_test.go' -exec grep -l '^func Fuzz' {} + |
		xargs -r -n 1 dirname | sort -u | sed "s|^\.|$module|")
fi
if ! printf '%s\n' $packages | xargs -r -P "${LANES:-1}" -n 1 "$0" --one; then
	echo "fuzzing failed" >&2
	exit 1
fi
echo "nothing found"
