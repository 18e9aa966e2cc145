// Package reference renders the reference for callers of an API: one HTML page without scripts, from its published document alone.
package reference

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/internal/style"
)

//go:embed reference.css
var sheet string

//go:embed reference.html
var pageText string

// Policy returns the Content-Security-Policy of the page, which has it too. The page loads nothing and runs nothing.
func Policy() string {
	sum := sha256.Sum256([]byte(style.CSS + sheet))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
}

// page has what the template shows, and what is needed to put it together.
type page struct {
	Title, Version, Summary string
	Origin, URL, URLText    string // of the gateway, and of the API
	Document                string // the URL of the published document; may be empty
	Text                    template.HTML
	Topics                  []link // headings in Text
	Credentials, Headers    []field
	Errors                  []problem
	ErrorFields             []field // members that all errors have
	ErrorExample            string
	Groups                  []*group
	Objects                 []section
	Others                  []other

	root     node
	markdown goldmark.Markdown
	base     string // path of the API
	ids      map[string]int
	shapes   map[*yaml.Node]*shape
	boths    map[[2]*yaml.Node]node
	objects  map[string]*object
	counted  map[place]bool
	open     map[place]bool  // schemas that are being described
	common   map[string]node // the variant that most responses have of a header
	queue    []string        // objects to be described
	requests []Request
	budget   int // how many values the example that is being made may still have
	variant  int // makes the items of a list differ
}

type link struct{ Title, ID string }

type group struct {
	link
	Text       template.HTML
	Operations []operation
}

type operation struct {
	link
	Name, Method, Path string
	Deprecated, Public bool
	Text               template.HTML
	Parameters         []parameters
	BodyText           template.HTML
	Bodies             []body
	Responses          []response
	Examples           []fact // of responses, with their statuses
	Errors             []failure
	Samples            []sample
}

type parameters struct {
	In     string
	Fields []field
}

// body is a body in one media type.
type body struct {
	MediaType string
	Required  bool
	Example   string
	field
}

type response struct {
	Status  string
	Text    template.HTML
	Headers []field
	Bodies  []body
}

// failure is a status of errors that the gateway documents.
type failure struct {
	Status string
	Codes  []link
}

// problem is an error of the gateway.
type problem struct {
	link     // its title is the code
	Statuses []string
	Text     template.HTML
	Message  string
	Fields   []field

	shared bool // Text is about other errors too
}

// section describes an object.
type section struct {
	link
	body
}

// other is a request that the document has no operation for.
type other struct {
	Text     template.HTML
	Failures []failure
}

// Render returns the page for a published document. documentURL is the URL of the document, relative to the page. If it is empty, the page
// does not link to the document.
func Render(published *yaml.Node, documentURL string) ([]byte, error) {
	p := read(published)
	p.Document = documentURL
	t, err := template.New("page").Funcs(template.FuncMap{
		"css":       func() template.CSS { return template.CSS(style.CSS + sheet) }, //nolint:gosec // G203: it is our own
		"policy":    Policy,
		"languages": languages,
		"icon": func() template.URL {
			return template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(style.Icon))) //nolint:gosec // G203: it is our own
		},
	}).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("parsing the template: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("rendering the reference: %w", err)
	}
	return out.Bytes(), nil
}

// read reads a published document.
func read(published *yaml.Node) *page {
	tables := extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)) // the policy forbids styles
	p := &page{
		root: node{published}, markdown: goldmark.New(goldmark.WithExtensions(tables)), ids: map[string]int{}, shapes: map[*yaml.Node]*shape{}, boths: map[[2]*yaml.Node]node{}, objects: map[string]*object{},
		counted: map[place]bool{}, open: map[place]bool{}, common: map[string]node{},
	}
	p.read()
	return p
}

func (p *page) read() {
	for name := range strings.FieldsSeq("top main contents authentication errors response-headers objects other-requests") {
		p.id(name)
	}
	for _, l := range languages() {
		p.id("language-" + l.Name)
	}
	info, server := p.root.get("info"), node{}
	if servers := p.root.get("servers").items(); len(servers) > 0 {
		server = servers[0]
	}
	base := server.get("variables", "base_url")
	p.base = strings.TrimPrefix(server.get("url").text(), "{base_url}")
	p.Origin, p.URLText = base.get("default").text(), base.get("description").text()
	p.URL = p.Origin + p.base
	p.Title, p.Version, p.Summary = info.get("title").text(), info.get("version").text(), info.get("summary").text()
	p.operations()
	p.Text = p.text(info.get("description").text(), 2, &p.Topics)
	for _, e := range p.root.get("components", "securitySchemes").entries() {
		p.Credentials = append(p.Credentials, field{Name: e.value.get("name").text(), Text: p.text(e.value.get("description").text(), 6, nil)})
	}
	for _, e := range p.root.get("x-other-requests").entries() {
		o := other{Text: p.text(e.value.get("description").text(), 6, nil)}
		for _, e := range e.value.get("responses").entries() {
			o.Failures = append(o.Failures, p.failure(e.name, p.resolve(e.value)))
		}
		p.Others = append(p.Others, o)
	}
	for ; len(p.queue) > 0; p.queue = p.queue[1:] {
		o, schema := p.objects[p.queue[0]], p.root.get("components", "schemas", p.queue[0])
		p.Objects = append(p.Objects, section{*o.link, body{field: p.whole(schema, o.sent), Example: p.exampleText(node{}, schema, o.sent)}})
	}
	slices.SortFunc(p.Objects, func(a, b section) int { return strings.Compare(a.Title, b.Title) })
	slices.SortStableFunc(p.Errors, func(a, b problem) int { return strings.Compare(a.Statuses[0], b.Statuses[0]) })
	p.commonErrorFields()
}

// operations describes the operations, in the groups of their first tags. HEAD beside GET is not described.
func (p *page) operations() {
	groups := map[string]*group{}
	add := func(name string, description node) *group {
		if groups[name] == nil {
			groups[name] = &group{link: link{name, p.id(name)}, Text: p.text(description.text(), 3, nil)}
			p.Groups = append(p.Groups, groups[name])
		}
		return groups[name]
	}
	type listed struct {
		method, path string
		node
	}
	var all []listed
	uses := map[*yaml.Node]int{}
	for _, path := range p.root.get("paths").entries() {
		for _, e := range path.value.entries() {
			if e.name == "head" && path.value.get("get").Node != nil {
				continue
			}
			all = append(all, listed{strings.ToUpper(e.name), path.name, e.value})
			for _, body := range p.resolve(e.value.get("requestBody")).get("content").entries() {
				p.count(body.value.get("schema"), true)
			}
			for _, response := range e.value.get("responses").entries() {
				for _, body := range p.resolve(response.value).get("content").entries() {
					p.count(body.value.get("schema"), false)
				}
				for _, header := range p.resolve(response.value).get("headers").entries() {
					if n := p.resolve(header.value); header.value.get("$ref").Node != nil && response.name < "4" {
						if uses[n.Node]++; uses[n.Node] > uses[p.common[header.name].Node] {
							p.common[header.name] = n
						}
					}
				}
			}
		}
	}
	ids := make([]string, len(all)) // taken before those of other headings, so that links to operations stay valid
	for i, o := range all {
		if ids[i] = o.get("operationId").text(); ids[i] == "" {
			ids[i] = strings.ToLower(o.method) + o.path
		}
		ids[i] = p.id(ids[i])
	}
	for _, tag := range p.root.get("tags").items() {
		add(tag.get("name").text(), tag.get("description"))
	}
	for i, o := range all {
		name, _, _ := strings.Cut(strings.TrimPrefix(o.path, "/"), "/")
		if tags := o.get("tags").texts(); len(tags) > 0 {
			name = tags[0]
		}
		described := p.operation(o.method, o.path, o.node)
		described.ID = ids[i]
		g := add(name, node{})
		g.Operations = append(g.Operations, described)
	}
	p.Groups = slices.DeleteFunc(p.Groups, func(g *group) bool { return len(g.Operations) == 0 })
}

func (p *page) operation(method, path string, n node) operation {
	o := operation{
		Name: n.get("operationId").text(), Method: method, Path: p.base + path, Deprecated: n.get("deprecated").isTrue(),
		Public: n.get("security").Node != nil && len(n.get("security").items()) == 0, Text: p.text(n.get("description").text(), 4, nil),
	}
	o.Title = cmp.Or(n.get("summary").text(), o.Name, method+" "+o.Path)
	var all []node
	for _, parameter := range n.get("parameters").items() {
		all = append(all, p.resolve(parameter))
	}
	for _, in := range []string{"path", "query", "header"} {
		group := parameters{In: in}
		for _, parameter := range all {
			if parameter.get("in").text() == in {
				group.Fields = append(group.Fields, p.valued(parameter.get("name").text(), parameter, true))
			}
		}
		if len(group.Fields) > 0 {
			o.Parameters = append(o.Parameters, group)
		}
	}
	content := p.resolve(n.get("requestBody"))
	o.Bodies, o.BodyText = p.bodies(content, ""), p.text(content.get("description").text(), 6, nil)
	for i := range o.Bodies {
		o.Bodies[i].Required = content.get("required").isTrue()
	}
	download := false
	for _, e := range n.get("responses").entries() {
		r := p.resolve(e.value)
		failed := p.failure(e.name, r)
		if len(failed.Codes) > 0 {
			o.Errors = append(o.Errors, failed)
		}
		bodies := p.bodies(r, e.name)
		download = download || e.name < "3" && slices.ContainsFunc(bodies, func(b body) bool { return !strings.HasSuffix(b.MediaType, "json") })
		if len(failed.Codes) > 0 && len(bodies) == 0 {
			continue
		}
		for _, b := range bodies {
			switch at := slices.IndexFunc(o.Examples, func(shown fact) bool { return shown.Value == b.Example }); {
			case at < 0 && b.Example != "":
				o.Examples = append(o.Examples, fact{e.name, b.Example})
			case at >= 0 && !strings.HasSuffix(o.Examples[at].Name, e.name):
				o.Examples[at].Name += ", " + e.name
			}
		}
		described := response{Status: e.name, Text: p.text(r.get("description").text(), 6, nil), Bodies: bodies}
		for _, header := range r.get("headers").entries() {
			n, common := p.resolve(header.value), p.common[header.name]
			if common.Node == nil {
				common = n
			}
			if header.value.get("$ref").Node == nil || toJSON(n.get("schema"), 0) != toJSON(common.get("schema"), 0) {
				described.Headers = append(described.Headers, p.valued(header.name, n, false))
			} else if !slices.ContainsFunc(p.Headers, func(f field) bool { return f.Name == header.name }) {
				p.Headers = append(p.Headers, p.valued(header.name, common, false))
			}
		}
		o.Responses = append(o.Responses, described)
	}
	r := p.request(method, path, all, content, !o.Public)
	r.Download = download
	p.requests = append(p.requests, r)
	o.Samples = samples(r)
	return o
}

// valued describes a parameter or a header, with its schema.
func (p *page) valued(name string, n node, sent bool) field {
	f := p.field(name, n.get("schema"), sent)
	f.Presence, f.Deprecated = presence(n.get("required").isTrue(), sent), f.Deprecated || n.get("deprecated").isTrue()
	if text := n.get("description").text(); text != "" {
		f.Text = p.text(text, 6, nil)
	}
	if example := n.get("example"); example.Node != nil {
		f.Facts = append(f.Facts, fact{"for example", plain(example)})
	}
	return f
}

// bodies describes the bodies of a response or, if status is empty, of a request.
func (p *page) bodies(n node, status string) (all []body) {
	sent := status == ""
	for _, e := range n.get("content").entries() {
		schema := e.value.get("schema")
		var errors, own []node
		if status >= "4" && e.name == "application/json" {
			errors, _, own = p.split(schema, map[string]bool{})
		}
		switch { // the gateway's own errors are described by failure
		case len(errors) > 0 && len(own) == 0:
			continue
		case len(errors) > 0 && len(own) == 1:
			schema = own[0]
		}
		b := body{MediaType: e.name, field: p.field("", schema, sent)}
		if strings.HasSuffix(e.name, "json") && len(errors) == 0 {
			b.Example = p.exampleText(e.value, e.value.get("schema"), sent)
		}
		all = append(all, b)
	}
	return all
}

// split divides the alternatives of a schema into errors, which have a constant code, and others. It returns the codes, too.
func (p *page) split(schema node, seen map[string]bool) (errors []node, codes []string, others []node) {
	s := p.shape(schema)
	for _, m := range s.members {
		if code := p.shape(m.value).keywords["const"].text(); m.name == "code" && code != "" {
			return []node{schema}, []string{code}, nil
		}
	}
	switch {
	case len(s.members) > 0 || len(s.choices) == 0:
		return nil, nil, []node{schema}
	case s.ref != "" && seen[s.ref]:
		return nil, nil, nil
	}
	seen[s.ref] = true
	for _, choice := range s.choices {
		e, c, o := p.split(choice, seen)
		errors, codes, others = append(errors, e...), append(codes, c...), append(others, o...)
	}
	return errors, codes, others
}

// failure describes the gateway's errors in a response, and adds them to p.Errors.
func (p *page) failure(status string, r node) (failed failure) {
	failed.Status = status
	media := r.get("content", "application/json")
	if status < "4" {
		return failed
	}
	examples := []node{media.get("example")}
	for _, e := range media.get("examples").entries() {
		examples = append(examples, p.resolve(e.value).get("value"))
	}
	schemas, codes, _ := p.split(media.get("schema"), map[string]bool{})
	for i, code := range codes {
		at := slices.IndexFunc(p.Errors, func(e problem) bool { return e.Title == code })
		if at < 0 {
			at = len(p.Errors)
			p.Errors = append(p.Errors, problem{link: link{code, p.id(code)}, shared: true, Fields: p.whole(schemas[i], false).Fields})
		}
		e := &p.Errors[at]
		for _, example := range examples {
			if text := toJSON(example, 0); example.get("code").text() == code && e.Message == "" {
				e.Message = example.get("error").text()
				if len(text) > len(p.ErrorExample) { // the longest example shows the most
					p.ErrorExample = text
				}
			}
		}
		if status == "4XX" {
			e.Statuses, e.shared = nil, true // 4XX includes them, and its text is the gateway's
		}
		if !slices.Contains(e.Statuses, status) && !slices.Contains(e.Statuses, "4XX") {
			e.Statuses = append(e.Statuses, status)
			slices.Sort(e.Statuses)
		}
		if e.shared {
			text := r.get("description").text()
			e.shared = len(codes) > 1
			e.Text = p.text(text[strings.LastIndex(text, "\n\n")+1:], 6, nil) // what the service says of the status is before
		}
		failed.Codes = append(failed.Codes, e.link)
	}
	return failed
}

// commonErrorFields moves the members that all errors have to p.ErrorFields.
func (p *page) commonErrorFields() {
	has := func(fields []field, name string) bool {
		return slices.ContainsFunc(fields, func(f field) bool { return f.Name == name })
	}
	for i, e := range p.Errors {
		if i == 0 {
			p.ErrorFields = slices.Clone(e.Fields)
		}
		p.ErrorFields = slices.DeleteFunc(p.ErrorFields, func(f field) bool { return !has(e.Fields, f.Name) })
	}
	for i := range p.ErrorFields {
		p.ErrorFields[i].Facts = nil // they are those of the first error
	}
	for i := range p.Errors {
		p.Errors[i].Fields = slices.DeleteFunc(p.Errors[i].Fields, func(f field) bool { return has(p.ErrorFields, f.Name) })
	}
}
