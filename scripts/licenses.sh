#!/bin/sh
# Prints the licences of what the binaries contain: of Go, and of all modules on all platforms.
set -eu
cd "$(dirname "$0")/.."
format='{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}'
modules=$(for os in linux darwin; do GOOS=$os go list -deps -tags="$GOTAGS" -f "$format" ./cmd/...; done)
echo 'Gatehouse contains Go and the following modules. The licences of each are below its name. The source code of a module is at its path.'
printf '%s\n' "go $(go env GOVERSION) $(go env GOROOT)" "$modules" | sort -u | while read -r module version folder; do
	printf '\n======== %s %s ========\n' "$module" "$version"
	found=
	for file in "$folder"/LICEN[CS]E* "$folder"/COPY* "$folder"/NOTICE* "$folder"/PATENTS*; do
		case $file in
		*'*'* | *.go) ;;
		*)
			printf '\n'
			cat "$file"
			found=yes
			;;
		esac
	done
	[ -n "$found" ] || { echo "$module has no licence in $folder" >&2; exit 1; }
done
