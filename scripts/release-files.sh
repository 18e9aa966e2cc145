#!/bin/sh
# Makes the files of a release that are neither sources nor binaries of it: manual pages, completions of shells, and the licences of what
# the binaries contain. GoReleaser runs it.
set -eu
cd "$(dirname "$0")/.."
program=bin/release/gatehouse
rm -rf bin/man bin/completions bin/release
mkdir -p bin/man bin/completions bin/release
CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags="$GOTAGS" -ldflags '-s -w' -o "$program" ./cmd/gatehouse
"$program" manpage --directory bin/man
for page in bin/man/*.8; do
	gzip -9nk "$page"
done
"$program" completion bash >bin/completions/gatehouse.bash
"$program" completion zsh >bin/completions/_gatehouse
"$program" completion fish >bin/completions/gatehouse.fish
scripts/licenses.sh >bin/THIRD-PARTY-LICENSES.txt
