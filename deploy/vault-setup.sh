#!/bin/sh
# Prepares a Vault for the gateway with curl: KV version 2 at kv/, AppRole, and a policy and a login for each of two roles:
#
#   gateway    reads credentials              vault-role-id and vault-secret-id into $LOGIN/gateway
#   operator   manages keys (gatehouse keys)  vault-role-id and vault-secret-id into $LOGIN/operator
#
# If you run it again, it overwrites the policies and roles, and creates new SecretIDs. The earlier ones stay valid, because SecretIDs do
# not expire: destroy them. It needs curl 7.76 or newer, and
#
#   VAULT_ADDR, VAULT_TOKEN   a Vault and a token that may do all this
#   VAULT_CACERT              the file of a private CA's certificate, if Vault's is from one
#   VAULT_NAMESPACE           a namespace of Vault Enterprise or OpenBao, if not the root's
#   SUFFIX                    for the keys of another environment in the same Vault, such as -staging: roles and policies get names that
#                             end with it, and the Caddyfile needs `path gateway-staging/keys`. Use a LOGIN of its own
#   LOGIN                     a directory to write to (default: /login)
#   POLICIES                  where vault-policy.hcl and vault-policy-operator.hcl are (default: this script's directory)
#   GATEWAY_UID               the user that the gateway runs as, which gets the files (default: 65532, as in the image)
set -eu

: "${VAULT_ADDR:?the address of Vault}" "${VAULT_TOKEN:?a token of Vault}"
LOGIN=${LOGIN:-/login}
POLICIES=${POLICIES:-$(dirname "$0")}
GATEWAY_UID=${GATEWAY_UID:-65532}
SUFFIX=${SUFFIX:-}
umask 077

# vault METHOD PATH [JSON]: calls Vault's HTTP API and prints the response. The token is not a process argument.
vault() {
	printf 'header = "X-Vault-Token: %s"\nheader = "X-Vault-Request: true"\nheader = "Content-Type: application/json"\n' "$VAULT_TOKEN" |
		curl --config - --silent --show-error --fail-with-body --max-time 30 \
			${VAULT_CACERT:+--cacert "$VAULT_CACERT"} ${VAULT_NAMESPACE:+--header "X-Vault-Namespace: $VAULT_NAMESPACE"} \
			--request "$1" ${3+--data "$3"} "$VAULT_ADDR/v1/$2"
}

# field NAME: prints the string member NAME of the JSON on standard input. Vault's ids contain no escapes.
field() {
	sed -n "s/.*\"$1\": *\"\\([^\"]*\\)\".*/\\1/p"
}

# policy NAME FILE: writes a policy for the environment's keys, encoded as a JSON string without comments and line feeds.
policy() {
	text=$(sed -e '/^ *#/d' -e "s|/gateway/keys/|/gateway$SUFFIX/keys/|" -e 's/\\/\\\\/g' -e 's/"/\\"/g' "$2" | tr '\n\t' '  ')
	vault PUT "sys/policies/acl/$1$SUFFIX" "{\"policy\":\"$text\"}"
}

# role NAME POLICY: creates an AppRole and writes its login, readable by the gateway's user only.
role() {
	vault POST "auth/approle/role/$1$SUFFIX" "{\"token_policies\":\"$2$SUFFIX\",\"token_no_default_policy\":true,\"token_ttl\":\"1h\",\"token_max_ttl\":\"24h\"}"
	mkdir -p "$LOGIN/$1"
	vault GET "auth/approle/role/$1$SUFFIX/role-id" | field role_id | tr -d '\n' >"$LOGIN/$1/vault-role-id"
	vault POST "auth/approle/role/$1$SUFFIX/secret-id" '{}' | field secret_id | tr -d '\n' >"$LOGIN/$1/vault-secret-id"
	if ! [ -s "$LOGIN/$1/vault-role-id" ] || ! [ -s "$LOGIN/$1/vault-secret-id" ]; then
		echo "vault-setup.sh: Vault returned no login for the role $1$SUFFIX" >&2
		exit 1
	fi
	[ "$(id -u)" -ne 0 ] || chown -R "$GATEWAY_UID" "$LOGIN/$1"
}

vault GET sys/mounts | grep '"kv/":' >/dev/null ||
	vault POST sys/mounts/kv '{"type":"kv","options":{"version":"2"}}'
if ! vault GET sys/mounts/kv/tune | grep '"version": *"2"' >/dev/null; then
	echo "vault-setup.sh: kv/ is not KV version 2. For version 1, create policies and roles yourself, with the rules in the comments of $POLICIES/vault-policy*.hcl" >&2
	exit 1
fi
if ! vault GET sys/auth | grep '"approle/":' >/dev/null; then
	vault POST sys/auth/approle '{"type":"approle"}'
	# All gateways share the role. With lockout, five logins with an expired SecretID, or by anybody who knows the role
	# id, would lock all of them out for 15 minutes.
	vault POST sys/auth/approle/tune '{"user_lockout_config":{"lockout_disable":true}}'
fi
policy gatehouse-gateway "$POLICIES/vault-policy.hcl"
policy gatehouse-operator "$POLICIES/vault-policy-operator.hcl"
role gateway gatehouse-gateway
role operator gatehouse-operator
echo "Vault is ready for the gateway"
