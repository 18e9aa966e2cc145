#!/bin/sh
# Prints the section of CHANGELOG.md about the version whose tag is checked out. That there is none is an error.
set -eu
cd "$(dirname "$0")/.."
tag=${1:-$(git describe --tags --exact-match)}
notes=$(awk -v heading="## [${tag#v}]" 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md)
[ -n "$notes" ] || {
	echo "release-notes.sh: CHANGELOG.md has no section ${tag#v}" >&2
	exit 1
}
# A release is on a page of its own, where relative links lead nowhere.
echo "$notes" | sed "s|](\\([A-Za-z][^):]*\\))|](https://github.com/gatehouse-gateway/gatehouse/blob/$tag/\\1)|g"
