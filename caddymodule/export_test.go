package caddymodule

// APITarget is apiTarget, for tests.
func APITarget(target, basePath string) (string, bool) { return apiTarget(target, basePath) }
