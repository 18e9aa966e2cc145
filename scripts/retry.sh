#!/bin/sh
# Runs a command that downloads something, up to four times, because registries fail occasionally.
#
#   scripts/retry.sh COMMAND [ARGUMENT ...]
#
# Do not use it for commands that fail for other reasons, such as tests.
set -u

pause=5
for attempt in 1 2 3; do
	"$@" && exit 0
	echo "retry.sh: attempt $attempt failed: $*; the next is in $pause s" >&2
	sleep "$pause"
	pause=$((pause * 3))
done
exec "$@"
