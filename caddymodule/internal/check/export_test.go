package check

// SlowVault is from when a response of Vault is slow.
const SlowVault = slowVault
