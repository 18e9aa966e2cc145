package caddymodule

// APITarget exports signedTarget for tests.
func APITarget(target, basePath string) (string, bool) {
	return signedTarget(originForm(target), basePath)
}
