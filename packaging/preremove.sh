#!/bin/sh
# dpkg calls it with "remove" or "upgrade"; rpm with the number of versions that stay installed.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;; # the new version's postinstall restarts the gateway
esac
[ -d /run/systemd/system ] || exit 0
systemctl --quiet disable --now gatehouse.service || true
