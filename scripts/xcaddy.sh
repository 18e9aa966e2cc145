#!/bin/sh
# Builds the gateway with xcaddy from the plugin list in xcaddy.json.
#
#   scripts/xcaddy.sh OUTPUT [BINARY]
#
# If BINARY is given, it fails unless that was built with the same Go from the same modules. LDFLAGS and GOTAGS are those of go
# build, GOOS and GOARCH the target's. It needs Debian's jq.
set -eu
output=$(realpath -m "$1")
same_as=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

GOOS='' GOARCH='' go -C tools build -o "$work/xcaddy" github.com/caddyserver/xcaddy/cmd/xcaddy

list() { jq -er "$1" xcaddy.json; }
# Not in the commands that use them, whose failure would be ignored.
version=$(list .caddy_version)
plugins=$(list '.plugins[] | .module_path + if .version then "@" + .version else "" end')
replaced=$(list '.replacements // [] | map(.old) | join("\n")')
replacements=$(list '.replacements // [] | map(.old + "=" + .new) | join("\n")')

set -- "$version" --output "$output"
for replacement in $replacements; do
	set -- "$@" --replace "$replacement"
done
for plugin in $plugins; do
	set -- "$@" --with "$plugin"
	case $plugin in *@*) pinned=yes ;; *) pinned= ;; esac
	# Go looks for a package in every module whose path is a prefix of the package's, longest first, and a registry that responds with
	# "forbidden" instead of "not found" ends the search before it reaches the replacement. This one has no versions of longer paths.
	for module in $replaced; do
		[ "$plugin" != "$module" ] || pinned=yes
		path=$plugin
		while [ "${path#"$module"/}" != "$path" ]; do
			pinned=yes
			mkdir -p "$work/proxy/$path/@v"
			: >"$work/proxy/$path/@v/list"
			path=${path%/*}
		done
	done
	if [ -z "$pinned" ]; then
		echo "xcaddy.json: the plugin $plugin has neither a version nor a replacement" >&2
		exit 1
	fi
done
GOPROXY=file://$work/proxy,$(go env GOPROXY) XCADDY_GO_BUILD_FLAGS="-trimpath -tags '${GOTAGS-}' -ldflags '${LDFLAGS--s -w}'" \
	"$work/xcaddy" build "$@"
[ -n "$same_as" ] || exit 0

# modules BINARY: prints the version of Go and those of the modules, except our own, which is the main module of one binary and a
# dependency of the other.
modules() {
	go version -m "$1" | awk -v own="$(go list -m)" 'NR == 1 { print $NF }
		$1 == "dep" { skip = $2 == own }
		($1 == "dep" || $1 == "=>") && !skip { print $1, $2, $3 }'
}
modules "$same_as" >"$work/1"
modules "$output" >"$work/2"
if ! diff -u "$work/1" "$work/2"; then
	echo "xcaddy.sh: $same_as and $output have different modules" >&2
	exit 1
fi
echo "$same_as and $output: the same Go and the same $(grep -c '^dep' "$work/1") modules"
