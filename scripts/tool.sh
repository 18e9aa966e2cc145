#!/bin/sh
# Runs a program that tools/go.mod pins, in the current directory.
#
#   scripts/tool.sh helm lint deploy/chart
set -eu
root=$(realpath "$(dirname "$0")/..")
name=$1
shift
package=$(go -C "$root/tools" list -f '{{.ImportPath}}' tool | grep -E "/$name(/v[0-9]+)?\$")
CGO_ENABLED=0 go -C "$root/tools" build -trimpath -ldflags '-s -w' -o "$root/.cache/bin/$name" "$package"
exec "$root/.cache/bin/$name" "$@"
