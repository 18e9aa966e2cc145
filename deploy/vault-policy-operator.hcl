# What `gatehouse keys` needs in Vault: to issue, rotate, revoke, list and show keys. For people and pipelines that manage
# keys. A gateway needs it only with `manage_keys`. Mount `kv` and path `gateway/keys` as in the Caddyfile's
# `credentials vault` block.

# KV version 2: entries are written with check-and-set, so that two operators do not overwrite each other's change, and
# revoking a key deletes all of its versions.
path "kv/data/gateway/keys/*" {
  capabilities = ["create", "read", "update"]
}
path "kv/metadata/gateway/keys/*" {
  capabilities = ["delete"]
}
path "kv/metadata/gateway/keys/" {
  capabilities = ["list"]
}

# KV version 1: these instead of the above.
#
# path "kv/gateway/keys/*" {
#   capabilities = ["create", "read", "update", "delete"]
# }
# path "kv/gateway/keys/" {
#   capabilities = ["list"]
# }

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
