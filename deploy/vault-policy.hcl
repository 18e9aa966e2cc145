# What a gateway may do in Vault: read the credential of a key that a request names. It can neither list nor change keys. Mount
# `kv` and path `gateway/keys` as in the Caddyfile's `credentials vault` block.

# KV version 2.
path "kv/data/gateway/keys/*" {
  capabilities = ["read"]
}

# KV version 1: this instead of the above.
#
# path "kv/gateway/keys/*" {
#   capabilities = ["read"]
# }

# Look up, renew and revoke its own token. Vault's `default` policy grants the same; with these rules a role does not need it
# (token_no_default_policy).
path "auth/token/lookup-self" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
path "auth/token/revoke-self" {
  capabilities = ["update"]
}

# `gatehouse check` compares the login's capabilities to those that it needs.
path "sys/capabilities-self" {
  capabilities = ["update"]
}
