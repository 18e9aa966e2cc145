// Package formtest reads the forms of HTML pages.
package formtest

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// Form is a form with its initial values, as a browser would send them unchanged, without buttons. The name of a box that is not
// checked has no values.
type Form struct {
	Action string
	Values url.Values
}

// Forms returns the forms of a page in their order.
func Forms(tb testing.TB, page string) (forms []Form) {
	tb.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(tb, err)
	for n := range root.Descendants() {
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "form":
			forms = append(forms, Form{Action: attribute(n, "action"), Values: url.Values{}})
		case n.Data == "input" && attribute(n, "name") != "" && len(forms) > 0:
			values, name, kind := forms[len(forms)-1].Values, attribute(n, "name"), attribute(n, "type")
			if kind != "checkbox" && kind != "radio" || has(n, "checked") {
				values.Add(name, attribute(n, "value"))
			} else if !values.Has(name) {
				values[name] = nil
			}
		}
	}
	return forms
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
