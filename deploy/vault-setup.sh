#!/bin/sh
# Prepares a Vault for the gateway, with curl alone: KV version 2 at kv/, AppRole, and for each of two roles a policy and
# what it signs in with:
#
#   gateway    reads credentials             role-id and secret-id into $LOGIN/gateway
#   operator   manages keys (gatehouse keys)  role-id and secret-id into $LOGIN/operator
#
# It may be run again: what exists is left or overwritten with the same, and secret ids are new ones. It needs
#
#   VAULT_ADDR, VAULT_TOKEN   a Vault and a token that may do all this
#   LOGIN                     a directory to write to (default: /login)
#   POLICIES                  where vault-policy.hcl and vault-policy-operator.hcl are (default: this script's directory)
#   GATEWAY_UID               the user that the gateway runs as (default: that of the image, 65532); the files are for it
set -eu

: "${VAULT_ADDR:?the address of Vault}" "${VAULT_TOKEN:?a token of Vault}"
LOGIN=${LOGIN:-/login}
POLICIES=${POLICIES:-$(dirname "$0")}
GATEWAY_UID=${GATEWAY_UID:-65532}
umask 077

# vault METHOD PATH [JSON]: calls Vault's HTTP API and prints its answer. The token goes in by a file, not as an argument.
vault() {
	printf 'header = "X-Vault-Token: %s"\nheader = "X-Vault-Request: true"\n' "$VAULT_TOKEN" |
		curl --config - --silent --show-error --fail-with-body --max-time 30 \
			--request "$1" ${3+--json "$3"} "$VAULT_ADDR/v1/$2"
}

# field NAME: the string of that name in the JSON on standard input. Vault's ids need no unescaping.
field() {
	sed -n "s/.*\"$1\": *\"\\([^\"]*\\)\".*/\\1/p"
}

# policy NAME FILE: writes a policy. Its text becomes a JSON string, without what would have to be escaped otherwise.
policy() {
	text=$(sed -e '/^ *#/d' -e 's/\\/\\\\/g' -e 's/"/\\"/g' "$2" | tr '\n\t' '  ')
	vault PUT "sys/policies/acl/$1" "{\"policy\":\"$text\"}"
}

# role NAME POLICY: an AppRole, and what it signs in with, readable only for the gateway's user.
role() {
	vault POST "auth/approle/role/$1" "{\"token_policies\":\"$2\",\"token_no_default_policy\":true,\"token_ttl\":\"1h\",\"token_max_ttl\":\"24h\"}"
	mkdir -p "$LOGIN/$1"
	vault GET "auth/approle/role/$1/role-id" | field role_id | tr -d '\n' >"$LOGIN/$1/role-id"
	vault POST "auth/approle/role/$1/secret-id" '{}' | field secret_id | tr -d '\n' >"$LOGIN/$1/secret-id"
	if ! [ -s "$LOGIN/$1/role-id" ] || ! [ -s "$LOGIN/$1/secret-id" ]; then
		echo "vault-setup.sh: Vault gave no login for the role $1" >&2
		exit 1
	fi
	[ "$(id -u)" -ne 0 ] || chown -R "$GATEWAY_UID" "$LOGIN/$1"
}

vault GET sys/mounts | grep '"kv/":' >/dev/null ||
	vault POST sys/mounts/kv '{"type":"kv","options":{"version":"2"}}'
if ! vault GET sys/auth | grep '"approle/":' >/dev/null; then
	vault POST sys/auth/approle '{"type":"approle"}'
	# Vault's lockout is for passwords. A role is all gateways: five sign-ins with a secret id that has expired, or by
	# anybody who has learnt the role id, would keep all of them out for a quarter of an hour.
	vault POST sys/auth/approle/tune '{"user_lockout_config":{"lockout_disable":true}}'
fi
policy gatehouse-gateway "$POLICIES/vault-policy.hcl"
policy gatehouse-operator "$POLICIES/vault-policy-operator.hcl"
role gateway gatehouse-gateway
role operator gatehouse-operator
echo "Vault is ready for the gateway"
