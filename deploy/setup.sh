#!/bin/sh
# The setup step of compose.yaml: creates logins for the gateway and for operators in Vault, and a password for Redis, which
# is kept until the volumes are removed. LOGIN is a directory with a subdirectory for each of them.
set -eu

LOGIN=${LOGIN:-/login}
GATEWAY_UID=${GATEWAY_UID:-65532}
REDIS_UID=${REDIS_UID:-999}
umask 077

mkdir -p "$LOGIN/redis" "$LOGIN/gateway" "$LOGIN/operator"
password=$LOGIN/redis/redis-password
[ -s "$password" ] || od -An -N 32 -tx1 /dev/urandom | tr -d ' \n' >"$password"
cp "$password" "$LOGIN/gateway/redis-password"
cp "$password" "$LOGIN/operator/redis-password" # to tell the gateways which keys have changed
[ "$(id -u)" -ne 0 ] || chown -R "$REDIS_UID" "$LOGIN/redis"

sh "$(dirname "$0")/vault-setup.sh"
