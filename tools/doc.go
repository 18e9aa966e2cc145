// Package tools pins the programs that build and check the repository with the tool directives of its go.mod. It is a separate
// module to keep their dependencies out of the product.
package tools
