package reference

import (
	"bufio"
	"bytes"
	"cmp"
	"html"
	"html/template"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

const (
	// maxNesting is how many blocks and spans of a description may be inside each other. A deeper one is shown as it is written.
	maxNesting = 32

	// maxText is how many bytes a description may have. A longer one is shown as it is written.
	maxText = 32 << 10
)

// tooDeep matches a line on which more quotes and lists begin than maxNesting.
var tooDeep = regexp.MustCompile(`(?m)^([ \t]*(>|[-+*][ \t]|[0-9]+[.)][ \t])){` + strconv.Itoa(maxNesting+1) + `}`)

var (
	markup   = regexp.MustCompile(`<[^>]*>`)
	web      = regexp.MustCompile(`^(?i:https?)://`)
	notInIDs = regexp.MustCompile(`[^\pL\p{Nd}_.]+`)
)

// text renders a description: CommonMark and tables, without raw HTML and images, whose links lead to http and https only. The highest heading gets
// the level. Headings get IDs, and are added to headings unless that is nil.
func (p *page) text(description string, level int, headings *[]link) template.HTML {
	if description == "" {
		return ""
	}
	source := []byte(description)
	asWritten := template.HTML("<pre>" + html.EscapeString(description) + "</pre>") //nolint:gosec // G203: it is escaped
	columns := 0
	for line := range strings.Lines(description) {
		columns = max(columns, strings.Count(line, "|"))
	}
	if len(source) > maxText || tooDeep.MatchString(description) || columns*strings.Count(description, "\n") > maxText {
		return asWritten // the parser takes time by the square of the depth, and each row of a table gets all columns
	}
	document := p.markdown.Parser().Parse(text.NewReader(source))
	var removed []ast.Node // their children take their place
	depth, deep, highest := 0, 0, 6
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			depth--
			return ast.WalkContinue, nil
		}
		depth++
		deep = max(deep, depth)
		switch n := n.(type) {
		case *ast.Heading:
			highest = min(highest, n.Level)
		case *ast.HTMLBlock, *ast.RawHTML, *ast.Image:
			removed = append(removed, n)
		case *ast.FencedCodeBlock:
			n.Info = nil // it would become a class
		case *ast.Link:
			n.Title = nil
			if !web.Match(n.Destination) {
				removed = append(removed, n)
			}
		case *ast.AutoLink:
			if !web.Match(n.URL(source)) {
				n.Parent().InsertBefore(n.Parent(), n, ast.NewString(n.Label(source)))
				removed = append(removed, n)
			}
		}
		return ast.WalkContinue, nil
	})
	if deep > maxNesting {
		return asWritten
	}
	for _, n := range removed {
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, child)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
	for n := document.FirstChild(); n != nil; n = n.NextSibling() {
		if heading, ok := n.(*ast.Heading); ok {
			var rendered strings.Builder
			_ = p.markdown.Renderer().Render(&rendered, source, heading) // again below, with its ID
			title := strings.TrimSpace(html.UnescapeString(markup.ReplaceAllString(rendered.String(), "")))
			id := p.id(title)
			heading.Level = min(heading.Level-highest+level, 6)
			heading.SetAttributeString("id", []byte(id))
			if headings != nil && heading.Level == level {
				*headings = append(*headings, link{title, id})
			}
		}
	}
	var out bytes.Buffer
	if err := p.markdown.Renderer().Render(bufio.NewWriterSize(&out, 2*len(source)), source, document); err != nil {
		return asWritten
	}
	return template.HTML(out.String()) //nolint:gosec // G203: goldmark escapes what is not its own, and what remains are links to the web
}

// id returns an ID for a heading that no other element of the page has.
func (p *page) id(title string) string {
	wanted := cmp.Or(strings.Trim(notInIDs.ReplaceAllString(title, "-"), "-."), "section")
	p.ids[wanted]++
	if n := p.ids[wanted]; n > 1 {
		return p.id(wanted + "-" + strconv.Itoa(n))
	}
	return wanted
}
