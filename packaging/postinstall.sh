#!/bin/sh
# dpkg calls it with "configure" and the old version, if any; rpm with the number of installed versions.
set -e

case "$1" in
configure | [0-9]*) ;;
*) exit 0 ;; # dpkg undoes something that failed
esac

getent group gatehouse >/dev/null || groupadd --system gatehouse
if ! getent passwd gatehouse >/dev/null; then
	useradd --system --gid gatehouse --no-create-home --home-dir /var/lib/gatehouse --shell /usr/sbin/nologin \
		--comment "Gatehouse API gateway" gatehouse
fi
if ! [ -d /etc/gatehouse/secrets ]; then
	install -d -o root -g gatehouse -m 0750 /etc/gatehouse/secrets
fi

[ -d /run/systemd/system ] || exit 0
systemctl --system daemon-reload || true
/usr/lib/systemd/systemd-sysctl /usr/lib/sysctl.d/60-gatehouse.conf || true

# Nothing is started that was not running: on a new machine, the configuration comes first. A gateway that runs gets the new program
# only if that accepts the configuration. Otherwise the old one goes on, from memory.
systemctl --quiet is-active gatehouse.service || exit 0
set -- --offline --config /etc/gatehouse/Caddyfile
[ ! -e /etc/gatehouse/gatehouse.env ] || set -- "$@" --envfile /etc/gatehouse/gatehouse.env
cd /etc/gatehouse
if /usr/bin/gatehouse check "$@"; then
	systemctl restart gatehouse.service ||
		echo "gatehouse: the restart failed: see journalctl -u gatehouse" >&2
else
	echo "gatehouse: the running gateway was NOT restarted, because the new version rejects /etc/gatehouse/Caddyfile (see above)." >&2
	echo "gatehouse: it still runs the old version. Correct the file, then: systemctl restart gatehouse" >&2
fi
