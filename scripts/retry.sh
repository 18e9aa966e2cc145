#!/bin/sh
# Runs a command that downloads something, up to four times: a registry that fails once is no reason to fail.
#
#   scripts/retry.sh COMMAND [ARGUMENT ...]
#
# It is for nothing that has reasons of its own to fail, tests least of all.
set -u

pause=5
for attempt in 1 2 3; do
	"$@" && exit 0
	echo "retry.sh: attempt $attempt failed: $*; the next is in $pause s" >&2
	sleep "$pause"
	pause=$((pause * 3))
done
exec "$@"
