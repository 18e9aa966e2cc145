package reference

import (
	"bufio"
	"bytes"
	"html"
	"html/template"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

const (
	// maxNesting is how many blocks and spans of a description may be inside each other. A deeper one is shown as it is written.
	maxNesting = 32

	// maxText is how many bytes a description may have. A longer one is shown as it is written.
	maxText = 32 << 10
)

// text renders a description: CommonMark without raw HTML and images, whose links lead to http and https only. The highest heading gets
// the level. Headings get IDs, and are added to headings unless that is nil.
func (p *page) text(description string, level int, headings *[]link) template.HTML {
	if description == "" {
		return ""
	}
	source := []byte(description)
	asWritten := template.HTML("<pre>" + html.EscapeString(description) + "</pre>") //nolint:gosec // G203: it is escaped
	if len(source) > maxText || deepest(description) > maxNesting {
		return asWritten // the parser takes time by the square of the depth
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
			if !isWeb(string(n.Destination)) {
				removed = append(removed, n)
			}
		case *ast.AutoLink:
			if !isWeb(string(n.URL(source))) {
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
			title := withoutMarkup(heading, source)
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

// withoutMarkup returns the text of a node without markup.
func withoutMarkup(n ast.Node, source []byte) string {
	var text strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			text.Write(n.Value(source))
		case *ast.String:
			text.Write(n.Value)
		}
		return ast.WalkContinue, nil
	})
	return text.String()
}

// deepest returns the maximum number of quotes and lists that begin on one line.
func deepest(description string) (deep int) {
	for line := range strings.Lines(description) {
		depth := 0
		for marker := true; marker; depth++ {
			line = strings.TrimLeft(line, " \t")
			number := strings.TrimLeft(line, "0123456789")
			switch {
			case strings.HasPrefix(line, ">"):
				line = line[1:]
			case len(line) > 1 && strings.ContainsRune("-+*", rune(line[0])) && (line[1] == ' ' || line[1] == '\t'):
				line = line[2:]
			case len(number) > 1 && len(number) < len(line) && (number[0] == '.' || number[0] == ')') && (number[1] == ' ' || number[1] == '\t'):
				line = number[2:]
			default:
				marker = false
			}
		}
		deep = max(deep, depth-1)
	}
	return deep
}

// isWeb reports whether a link leads to a web page.
func isWeb(url string) bool {
	url = strings.ToLower(url)
	return strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")
}

// id returns an ID for a heading that no other element of the page has.
func (p *page) id(title string) string {
	var id strings.Builder
	for _, c := range title {
		switch {
		case unicode.IsLetter(c), unicode.IsDigit(c), c == '_', c == '.':
			id.WriteRune(c)
		case id.Len() > 0 && !strings.HasSuffix(id.String(), "-"):
			id.WriteByte('-')
		}
	}
	wanted := strings.Trim(id.String(), "-.")
	if wanted == "" {
		wanted = "section"
	}
	p.ids[wanted]++
	if n := p.ids[wanted]; n > 1 {
		return p.id(wanted + "-" + strconv.Itoa(n))
	}
	return wanted
}
