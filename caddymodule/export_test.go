package caddymodule

// APITarget is what the API sees of a request target, for tests.
func APITarget(target, basePath string) (string, bool) {
	return signedTarget(originForm(target), basePath)
}
