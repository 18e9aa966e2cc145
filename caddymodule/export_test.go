package caddymodule

import "github.com/gatehouse-gateway/gatehouse/upstream/definition"

// APITarget exports signedTarget for tests.
func APITarget(target, basePath string) (string, bool) {
	h := &API{BasePath: basePath, api: definition.Public()}
	return h.signedTarget(originForm(target))
}
