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
# only if that can start with the configuration. Otherwise the old one goes on, from memory.
systemctl --quiet is-active gatehouse.service || exit 0
set -- --config /etc/gatehouse/Caddyfile
[ ! -e /etc/gatehouse/gatehouse.env ] || set -- "$@" --envfile /etc/gatehouse/gatehouse.env
cd /etc/gatehouse
umask 077
# as_service COMMAND ...: runs the new program as the unit does: with its folders, and as its user, who cannot read all that root can.
as_service() {
	setpriv --reuid=gatehouse --regid=gatehouse --init-groups \
		env HOME=/var/lib/gatehouse XDG_DATA_HOME=/var/lib/gatehouse XDG_CONFIG_HOME=/var/lib/gatehouse /usr/bin/gatehouse "$@"
}
# validate builds everything and starts nothing. Unlike the check, it fails if a file is missing. Redis and Vault may be unavailable.
log=
if as_service check --offline "$@" && log=$(as_service validate "$@" 2>&1); then
	systemctl restart gatehouse.service ||
		echo "gatehouse: the restart failed: see journalctl -u gatehouse" >&2
else
	[ -z "$log" ] || echo "$log" >&2
	echo "gatehouse: the running gateway was NOT restarted, because the new version would not start (see above)." >&2
	echo "gatehouse: it still runs the old version. Correct /etc/gatehouse/Caddyfile, or what it names, then: systemctl restart gatehouse" >&2
fi
