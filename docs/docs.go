// Package docs is the documentation of Gatehouse. Its tests run what the pages show: the Caddyfiles are adapted, the
// clients' programs sign real requests, and the OpenAPI document is compared with the contract's resources.
package docs

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document of the public API, in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Check is the page about `gatehouse check`, which takes the texts of its rules from the table of that page.
//
//go:embed check.md
var Check string
