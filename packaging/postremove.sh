#!/bin/sh
# dpkg calls it with "remove", "purge" or others; rpm with the number of versions that stay installed.
set -e

case "$1" in
purge)
	# Certificates with the ACME account, logs, and the secrets that were put there for the gateway. The user stays, so that its number
	# is not given to another user who could then read what it owned elsewhere.
	rm -rf /var/lib/gatehouse /var/log/gatehouse /etc/gatehouse/secrets
	rmdir --ignore-fail-on-non-empty /etc/gatehouse 2>/dev/null || true
	;;
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl --system daemon-reload || true
