// Package tools pins the programs that build and check the repository (see the tool directives in go.mod), in a module
// of its own, so that their dependencies stay out of the product's.
package tools
