#!/bin/sh
# Runs `go test` by gotestsum, which prints a line for each package, and at the end the output of failed tests. The last line of a
# run whose tests pass is
#
#	N passed, 0 failed, 0 skipped
#
# A skipped test is a failure, and so is a run without tests.
#
#   scripts/test.sh GOTESTSUM ARGUMENT OF GO TEST ...
set -eu

if [ "$1" != --summary ]; then
	gotestsum=$1
	shift
	events=$(mktemp)
	trap 'rm -f "$events"' EXIT
	"$gotestsum" --format pkgname --format-hide-empty-pkg --jsonfile-timing-events "$events" \
		--post-run-command "$0 --summary $gotestsum" -- "$@"
	exit
fi

# What gotestsum runs afterwards, with variables.
echo
echo "slowest:"
"$2" tool slowest --num 10 --jsonfile "$GOTESTSUM_JSONFILE_TIMING_EVENTS"
echo
passed=$(grep -c '"Action":"pass",.*"Test":' "$GOTESTSUM_JSONFILE_TIMING_EVENTS" || true)
echo "$passed passed, $TESTS_FAILED failed, $TESTS_SKIPPED skipped"
[ "$passed" -gt 0 ] && [ "$TESTS_SKIPPED" = 0 ]
