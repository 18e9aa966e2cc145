// Package style has the style sheet, its accent and the icon of all HTML pages.
package style

import _ "embed"

// CSS is the style sheet.
//
//go:embed gatehouse.css
var CSS string

// Icon is the icon, in SVG.
//
//go:embed gatehouse.svg
var Icon string
