#!/bin/sh
# Installs the Debian packages of missing commands.
#
#   scripts/packages.sh redis-server openssl ...
#
# It needs root or sudo, unless every command is present.
set -eu

# package_of COMMAND: prints the Debian packages that a command needs.
package_of() {
	case "$1" in
	redis-server | redis-sentinel | openssl | curl | wrk | npm | chromium | python3 | jq | mmdebstrap | zsh) echo "$1" ;;
	redis-cli) echo redis-tools ;;
	node) echo nodejs ;;
	php) echo php-cli php-curl ;;
	prometheus | promtool) echo prometheus ;;
	# The race detector needs a C compiler and the C library's headers.
	gcc) echo gcc libc6-dev ;;
	*)
		echo "packages.sh: no package is known for the command $1" >&2
		exit 2
		;;
	esac
}

present() {
	# The PATH of other users than root may lack the directories of servers.
	PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || return 1
	[ "$1" != php ] || php -m | grep -qx curl || return 1
	[ "$1" != gcc ] || echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1
}

missing=
for command in "$@"; do
	present "$command" || missing="$missing $(package_of "$command")"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
	echo "packages.sh: apt-get not found; please install the equivalents of these Debian packages:$missing" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "packages.sh: neither root nor sudo; please install:$missing" >&2
		exit 1
	fi
	sudo=sudo
fi

echo "installing:$missing"
# RUNLEVEL=1 keeps a System V init from starting the packages' services, which the tests do not use. With Error-Mode=any, a
# package list that could not be fetched is an error, so that retry.sh tries again.
apt() {
	"$(dirname "$0")/retry.sh" $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
		apt-get -qq -o DPkg::Lock::Timeout=300 -o APT::Update::Error-Mode=any "$@"
}
apt update || echo "packages.sh: the package lists could not be refreshed; trying with what is there" >&2
apt install -y --no-install-recommends $missing >/dev/null
# systemd ignores RUNLEVEL. It has started the services, and would at each boot: Debian's prometheus listens on all addresses.
if [ -d /run/systemd/system ]; then
	for unit in $(dpkg -L $missing | sed -n 's|.*/systemd/system/\([^/@]*\.\(service\|socket\|timer\)\)$|\1|p'); do
		$sudo systemctl --quiet disable --now "$unit"
	done
fi

for command in "$@"; do
	present "$command" || {
		echo "packages.sh: $command is still missing after the installation of $(package_of "$command")" >&2
		exit 1
	}
done
