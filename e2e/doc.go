// Package e2e holds the tests that run the whole gateway as its users do: the real binary with real stores behind it,
// called over real connections. See the test files; there is no other code here.
package e2e
