#!/bin/sh
# Fuzzes every Fuzz target of the module in the working directory.
#
#   scripts/fuzz.sh FUZZTIME [PACKAGE ...]      FUZZTIME is the -fuzztime of go test: 5s, 10m, 100000x
#
# FUZZCACHE is the directory of the generated corpus, by default the one in Go's cache that `go test -fuzz` uses. If it is
# empty, the corpus is not kept, so that short runs spend their time on new inputs.
#
# UNGUIDED=yes builds targets without coverage instrumentation. This suits short runs, because instrumenting takes minutes and
# a guided run spends its first seconds on the corpus. Such a run relies on the seeds and on testdata/fuzz for inputs near the
# limits: a target without seeds of its own needs them there.
#
# JOBS is the number of packages that are fuzzed at the same time, by default 1. If it is greater, each target uses one
# processor instead of all.
#
# A failing input is written to the package's testdata/fuzz. Commit it with the fix.
set -eu

# one PACKAGE: fuzzes the targets of a package.
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
	[ "${JOBS:-1}" = 1 ] || workers=-test.parallel=1
	go test -c $guide -vet=off ${GOTAGS:+-tags="$GOTAGS"} -o "$binary" "$package"
	failed=
	for target in $(cd "$dir" && "$binary" -test.list '^Fuzz'); do
		name=${package#"$module"/}.$target
		if (cd "$dir" && "$binary" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$FUZZTIME" $workers \
			-test.fuzzminimizetime=5s -test.fuzzcachedir="$cache/$package" -test.timeout=0) >"$work/log" 2>&1; then
			echo "ok    $name  $(sed -n 's/^fuzz: elapsed: //p' "$work/log" | tail -n 1)"
		elif ! grep -q -e 'Failing input written' -e 'panic' -e 'failure while' "$work/log" &&
			[ "$(grep -A 1 -e '^--- FAIL' "$work/log" | tail -n 1)" = '    context deadline exceeded' ]; then
			# Before Go 1.27, the end of the fuzz time may be reported as a failure (https://go.dev/issue/75804).
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
	# those with the most targets first, so that all JOBS end at about the same time
	packages=$(find . \( -name '.?*' -o -name testdata -o -name node_modules \) -prune -o \
		-name '*_test.go' -exec grep -H '^func Fuzz' {} + |
		sed 's|/[^/]*:.*||' | sort | uniq -c | sort -rn | sed "s|^[^.]*\.|$module|")
fi
if ! printf '%s\n' $packages | xargs -r -P "${JOBS:-1}" -n 1 "$0" --one; then
	echo "fuzzing failed" >&2
	exit 1
fi
echo "nothing found"
