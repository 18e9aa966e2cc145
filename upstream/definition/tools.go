package definition

import (
	"cmp"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The kinds of tools.
const (
	KindRead   = "read"
	KindCreate = "create"
	KindUpdate = "update"
	KindDelete = "delete" // for good
	KindRun    = "run"    // starts something that goes on by itself and may reach people outside
)

// MaxTools is the maximum number of tools: some clients show a model only the first 40.
const MaxTools = 39

// MaxAreas is the maximum number of areas of tools.
const MaxAreas = 21

// What is longer is warned of.
const maxToolName, maxDescription, maxInstructions = 45, 1024, 400

// untrusted is the prefix of the names of members whose text comes from outsiders.
const untrusted = "untrusted_"

// Tool is a tool for assistants: an operation with x-gatehouse-tool.
type Tool struct {
	Operation   *upstream.Operation
	Name        string // default: the operation's ID
	Title       string // default: the operation's summary
	Description string // default: the first paragraph of the operation's description
	Area        string // the operation's first tag
	Kind        string // default: by the method
	People      bool   // it writes to people outside the business
	Idempotent  bool   // a second call has no effect but that of the first
	Does        string // what it did, for the activity page; members of the record in braces
	Handler     string // name of an implementation in package mcp. Default: the operation is called

	// Version is the path of names to the record's version in the response, for If-Match. Default: nil, none.
	Version []string

	// Confirm says what a person must confirm before the tool is called. Default: nil, nothing.
	Confirm *Confirm

	// Replace is called instead of Operation if the arguments have a record's ID: it changes that record. For a PUT, it is Operation. Default: nil.
	Replace *upstream.Operation

	// Read reads the record that the tool changes. It is the GET of the same path. Default: nil, there is none.
	Read *upstream.Operation

	// With are called as well. Each result becomes a member beside that of Operation, named by the last segment of its path.
	With []*upstream.Operation

	// Fields are the properties of records that are in the result unless the caller asks for others. Default: all.
	Fields []string

	// Arguments has the names of arguments that are called differently than a parameter or a member of the body, by the latter's name.
	Arguments map[string]string
}

// Confirm says what a person must confirm, and when.
type Confirm struct {
	Read *upstream.Operation // reads the record. Default: nil, no record is read
	Text string              // names the record; its members in braces
	If   string              // the argument, or the member of the record, that requires confirmation. Default: always

	Unless string // the argument that makes confirmation unnecessary, such as that of a dry run. Default: none
}

// Area is a part of a business's data, for scopes and the approval page. It is a tag of the document.
type Area struct {
	Name  string // in scopes
	Title string // default: the name
	Noun  string // for models, as a part of "a business's data". Default: the tag's description
	Read  string // what the person allows, on the approval page. Default: "See", and the noun
	Write string // default: "Add, change and delete", and the noun
	Run   string // default: "Start", and the noun
}

var (
	toolName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	argument = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) // models' APIs reject all tools if one has other names
	noName   = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
	areaName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	inBraces = regexp.MustCompile(`\{([^{}]*)\}`)
)

// IsArgument reports whether a name is possible for an argument.
func IsArgument(name string) bool { return argument.MatchString(name) }

// makeTools compiles the tools of the operations, and their areas.
func (c *compiler) makeTools(all []*operationNode) {
	seen := map[string]bool{}
	for _, n := range all {
		if ext := n.get(extTool); ext.Node != nil {
			t := c.tool(n, ext, all)
			c.faultIf(seen[t.Name], ext.get("name"), "%s is the name of two tools", t.Name)
			seen[t.Name] = true
			c.tools = append(c.tools, t)
		}
	}
	c.faultIf(len(c.tools) == 0 || len(c.tools) > MaxTools, c.root.get("paths"), "%d operations have %s: must be 1 to %d", len(c.tools), extTool, MaxTools)
	c.strings(c.root.get(extInstruct))
	if n := utf8.RuneCountInString(c.instructions()); n > maxInstructions {
		c.warn(c.root.get(extInstruct), "these are %d characters: clients that cut instructions at 2048 characters, with the gateway's own, drop what is beyond %d", n, maxInstructions)
	}
	named := map[string]bool{}
	for _, tag := range c.root.get("tags").items() {
		a := Area{Name: tag.get("name").text()}
		c.faultIf(named[a.Name], tag, "%s is the name of two tags. An overlay changes the first one with the target $.tags[?@.name == '%s']", a.Name, a.Name)
		named[a.Name] = true
		kinds := map[string]bool{}
		for _, t := range c.tools {
			if t.Area == a.Name {
				kinds[t.Kind] = true
			}
		}
		if len(kinds) == 0 || a.Name == "" {
			continue
		}
		c.faultIf(!areaName.MatchString(a.Name) || a.Name == "mcp", tag.get("name"), "is not a possible name of an area, for scopes: letters, digits, . _ and -, and not mcp")
		ext := tag.get(extArea)
		if ext.Node != nil {
			c.allowOnly(ext, "title", "noun", "read", "write", "run")
		}
		text := func(name, initial string) string { return cmp.Or(c.string(ext.get(name)), initial) }
		a.Title = text("title", strings.ToUpper(a.Name[:1])+a.Name[1:])
		described := strings.TrimSuffix(oneLine(tag.get("description").text()), ".")
		a.Noun = text("noun", cmp.Or(lowerFirst(described), a.Name))
		a.Read = text("read", "See "+a.Noun)
		if kinds[KindCreate] || kinds[KindUpdate] || kinds[KindDelete] {
			a.Write = text("write", "Add, change and delete "+a.Noun)
		}
		if kinds[KindRun] {
			a.Run = text("run", "Start "+a.Noun)
		}
		c.areas = append(c.areas, a)
	}
	c.faultIf(len(c.areas) > MaxAreas, c.root.get("tags"), "the tools have %d areas: must be at most %d", len(c.areas), MaxAreas)
	for _, n := range all {
		if ext := n.get(extTool); ext.Node != nil && !slices.ContainsFunc(c.areas, func(a Area) bool { return a.Name == areaOf(n) }) {
			c.fault(n.get("tags"), "a tool needs a tag that the document declares: it is the tool's area")
		}
	}
}

// tool compiles one tool.
func (c *compiler) tool(n *operationNode, ext node, all []*operationNode) *Tool {
	c.allowOnly(ext, "name", "title", "description", "kind", "risk", "adds", "does", "version", "confirm", "replace", "with", "fields", "handler", "arguments")
	op := n.op
	t := &Tool{
		Operation: op, Name: cmp.Or(c.string(ext.get("name")), snakeCase(n.id)), Area: areaOf(n),
		Title: cmp.Or(ext.get("title").text(), n.get("summary").text(), n.id), Kind: c.string(ext.get("kind")), Does: c.string(ext.get("does")),
		Handler: c.string(ext.get("handler")), Fields: c.strings(ext.get("fields")), Arguments: map[string]string{},
	}
	paragraph, _, _ := strings.Cut(strings.TrimSpace(n.get("description").text()), "\n\n")
	t.Description = oneLine(cmp.Or(ext.get("description").text(), paragraph, t.Title))
	if utf8.RuneCountInString(t.Description) > maxDescription {
		c.warn(ext, "the description has more than %d characters: some clients cut it, or reject the whole list of tools", maxDescription)
	}
	if len(t.Name) > maxToolName {
		c.warn(ext, "the name %s has more than %d characters: some clients leave out tools whose name, with the server's, has more than 60", t.Name, maxToolName)
	}
	operationOf := func(n node) *upstream.Operation {
		i := slices.IndexFunc(all, func(other *operationNode) bool { return other.id == n.text() })
		if c.faultIf(i < 0, n, "is not an operation") {
			return nil
		}
		c.faultIf(t.isElsewhere(all[i]), n, "is an operation of the area %s: no tool makes the calls of another area", areaOf(all[i]))
		return all[i].op
	}
	c.faultIf(!toolName.MatchString(t.Name), ext, "%q is not a possible name of a tool: lower-case letters, digits and _, at most 64", t.Name)
	byMethod := map[string]string{http.MethodPost: KindCreate, http.MethodPut: KindUpdate, http.MethodPatch: KindUpdate, http.MethodDelete: KindDelete}
	initial := cmp.Or(byMethod[op.Method], KindRead)
	if op.Read {
		initial = KindRead
	}
	if t.Kind = cmp.Or(t.Kind, initial); op.Read != (t.Kind == KindRead) || initial == KindDelete && t.Kind != initial || !slices.Contains([]string{KindRead, KindCreate, KindUpdate, KindDelete, KindRun}, t.Kind) {
		c.fault(ext.get("kind"), "must be read for an operation that reads, delete for DELETE, and otherwise create, update, delete or run")
	}
	c.faultIf(op.ByGateway, ext, "the gateway responds to this operation itself, which is of no use to an assistant")
	if risk := ext.get("risk"); risk.Node != nil {
		if t.People = risk.text() == "people"; !t.People || op.Read {
			c.fault(risk, "must be people, of an operation that writes")
		}
	}
	adds := ext.get("adds")
	c.faultIf(adds.Node != nil && (adds.text() != "true" || t.Kind != KindUpdate), adds, "must be true, of an operation that updates")
	for _, with := range c.list(ext.get("with")) {
		if read := operationOf(with); read != nil {
			c.faultIf(!read.Read || len(read.PathParams) > 0 || slices.ContainsFunc(read.Params, isRequired), with, "must read, without parameters in its path or required ones")
			last := func(op *upstream.Operation) string {
				path := strings.TrimSuffix(op.Path, "/")
				return path[strings.LastIndexByte(path, '/')+1:]
			}
			if slices.ContainsFunc(t.With, func(other *upstream.Operation) bool { return last(other) == last(read) }) {
				c.fault(with, "ends as the path of another one: its result would be in its place")
			}
			t.With = append(t.With, read)
		}
	}
	if version := ext.get("version"); version.Node != nil {
		t.Version = namesIn(version.text())
		c.faultIf(!op.Forwards("If-Match") && ext.get("replace").Node == nil, version, "needs the header If-Match, documented")
	}
	record := op.Record()
	for i, name := range t.Fields {
		if record == nil || record.Property(name) == nil {
			c.fault(ext.get("fields").items()[i], "is not a member of the records")
		}
	}
	t.Read = t.readOf(op, all)
	if replace := ext.get("replace"); replace.Node != nil {
		if t.Replace = operationOf(replace); t.Replace != nil {
			t.Read = t.readOf(t.Replace, all)
			c.checkReplacement(t, replace)
		}
	} else if op.Method == http.MethodPut && op.Body != nil {
		t.Replace = op
		c.checkReplacement(t, ext)
	}
	names := argumentsOf(op)
	if t.Replace != nil {
		names = append(names, argumentsOf(t.Replace)...)
	}
	for _, e := range c.members(ext.get("arguments")) {
		if t.Arguments[e.name] = c.string(e.value); !slices.Contains(names, e.name) {
			c.fault(e.value, "%s is neither a parameter nor a member of the body", e.name)
		}
	}
	taken := map[string]bool{}
	for _, name := range names {
		taken[cmp.Or(t.Arguments[name], name)] = true
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		own := cmp.Or(t.Arguments[name], name)
		if t.Arguments[name] == "" && !argument.MatchString(own) { // such as filter[status]
			own = strings.Trim(noName.ReplaceAllString(name, "_"), "_")
			t.Arguments[name] = own
			c.faultIf(taken[own], ext, "two arguments are called %s: name one of them under arguments", own)
			taken[own] = true
		}
		c.faultIf(!argument.MatchString(own), ext, "%q cannot be the name of an argument: under arguments, give it one of up to 64 letters, digits, _, . and -", own)
	}
	if t.Version != nil && t.Read != nil && t.Read.Success().Body.At(t.Version) == nil {
		c.fault(ext.get("version"), "is not in the response of %s", t.Read.ID)
	}
	t.Idempotent = op.Method != http.MethodPost && adds.Node == nil && (t.Kind == KindUpdate || t.Kind == KindDelete)
	for _, one := range []*upstream.Operation{op, t.Replace} {
		if one != nil && one.Body != nil && requiresTenant(one.Body.Kinds[0].Schema, true, map[*upstream.Schema]bool{}) {
			c.fault(ext, "the body of %s requires the ID of the business in a map, a list, a nested object or one of several schemas, where the gateway does not add it", one.ID)
		}
		if one != nil && t.Version == nil && (t.Read == nil || !t.Read.Success().ETag) && slices.ContainsFunc(one.Headers, func(p upstream.Param) bool { return p.Name == "If-Match" && p.Required }) {
			c.fault(ext, "%s requires If-Match, which nothing gives: it takes a version, or a GET of the same path and area with an ETag", one.ID)
		}
	}
	if confirm := ext.get("confirm"); confirm.Node != nil {
		c.allowOnly(confirm, "read", "text", "if", "unless")
		t.Confirm = &Confirm{
			Text: c.string(confirm.get("text")), If: c.string(confirm.get("if")), Unless: c.string(confirm.get("unless")),
		}
		if read := confirm.get("read"); read.Node != nil {
			if by := operationOf(read); by != nil {
				t.Confirm.Read, record = by, by.Record()
				if !by.Read || slices.ContainsFunc(by.Params, isRequired) || slices.ContainsFunc(by.PathParams, func(p upstream.Param) bool {
					return !slices.ContainsFunc(cmp.Or(t.Replace, op).PathParams, func(own upstream.Param) bool { return own.Name == p.Name })
				}) {
					c.fault(read, "must read, by no parameters but those of the tool's own path")
				}
			}
		}
		c.faultIf(t.Kind == KindDelete && t.Confirm.If+t.Confirm.Unless != "", confirm, "a deletion is always confirmed: if and unless are for others")
		for i, name := range []string{t.Confirm.If, t.Confirm.Unless} {
			isArgument := t.Handler != "" || slices.ContainsFunc(names, func(n string) bool { return cmp.Or(t.Arguments[n], n) == name })
			if name != "" && !isArgument && (i > 0 || record == nil || record.Property(name) == nil) {
				c.fault(confirm, "%s is not an argument, nor for if a member of the record", name)
			}
		}
		c.checkPlaceholders(confirm.get("text"), record, op)
	}
	c.checkPlaceholders(ext.get("does"), record, op)
	return t
}

// requiresTenant reports whether a body requires the ID of the business elsewhere than at the top of an object, where the gateway adds it.
func requiresTenant(s *upstream.Schema, top bool, seen map[*upstream.Schema]bool) bool {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = !top
	p := s.Property(s.Tenant)
	found := s.Tenant != "" && p != nil && p.Required && p.Schema.Refused == "" && (!top || s.Additional != nil)
	s.Parts(func(part *upstream.Schema) { found = found || requiresTenant(part, false, seen) })
	return found
}

// instructions returns the lines of x-gatehouse-instructions.
func (c *compiler) instructions() string {
	var b strings.Builder
	for _, line := range c.root.get(extInstruct).texts() {
		b.WriteString("- " + oneLine(line) + "\n")
	}
	return b.String()
}

func isRequired(p upstream.Param) bool { return p.Required }

// argumentsOf returns the names of the parameters of an operation, and of the members of its body.
func argumentsOf(op *upstream.Operation) (names []string) {
	for _, p := range slices.Concat(op.PathParams, op.Params) {
		names = append(names, p.Name)
	}
	if op.Body != nil {
		for _, p := range op.Body.Kinds[0].Schema.Properties {
			names = append(names, p.Name)
		}
	}
	return names
}

// areaOf returns the area of an operation, or "".
func areaOf(n *operationNode) string { return n.get("tags").member("0").text() }

// isElsewhere reports whether an operation is of another area than the tool. That area may be switched off, or not be allowed.
func (t *Tool) isElsewhere(n *operationNode) bool { return areaOf(n) != "" && areaOf(n) != t.Area }

// readOf returns the GET with the path of an operation that writes, or nil.
func (t *Tool) readOf(op *upstream.Operation, all []*operationNode) *upstream.Operation {
	for _, other := range all {
		if other.op.Path == op.Path && other.op.Method == http.MethodGet && other.op != op && !t.isElsewhere(other) {
			return other.op
		}
	}
	return nil
}

// checkReplacement checks that t.Replace can change a record without losing members that the arguments do not mention.
func (c *compiler) checkReplacement(t *Tool, n node) {
	if t.Kind == KindCreate {
		t.Kind = KindUpdate
	}
	r := t.Replace
	switch {
	case r == t.Operation:
	case t.Operation.Method != http.MethodPost || r.Method != http.MethodPut && r.Method != http.MethodPatch || r.Body == nil || t.Operation.Body == nil:
		c.fault(n, "is for POST, beside a PUT or PATCH, each with a body")
		return
	case len(r.PathParams) != len(t.Operation.PathParams)+1:
		c.fault(n, "must have one more parameter in its path: the record's")
		return
	default: // the arguments are those of a change
		for _, p := range t.Operation.Body.Kinds[0].Schema.Properties {
			own := r.Body.Kinds[0].Schema.Property(p.Name)
			c.faultIf(p.Schema.Refused == "" && p.Name != t.Operation.Body.Kinds[0].Schema.Tenant && (own == nil || own.Schema.Refused != ""), n, "the body of %s has no %s: a record could not be created with it", r.ID, p.Name)
		}
		c.faultIf(slices.ContainsFunc(r.Params, isRequired), n, "%s requires a parameter of the query, which is not an argument", r.ID)
	}
	if r.Method == http.MethodPatch {
		return
	}
	if t.Read == nil || !r.Forwards("If-Match") || t.Version == nil && !t.Read.Success().ETag {
		c.fault(n, "%s replaces: without If-Match and a version from a GET of the same path and area, what another one wrote would be lost. PATCH is required", r.ID)
		return
	}
	body, lost := r.Body.Kinds[0].Schema, "the body, which is not an object"
	if body.Types&upstream.TypeObject != 0 {
		lost = firstUnreadable(body, t.Read.Record(), map[[2]*upstream.Schema]bool{}, "the body")
	}
	c.faultIf(lost != "", n, "%s replaces what cannot be read as it was written: %s. PATCH is required", r.ID, lost)
}

// firstUnreadable describes the first member that a body can have but a record does not have in the same form, so that it could not be written back. It
// returns "" if there is none. place is where both are in the body, at first "the body".
func firstUnreadable(body, record *upstream.Schema, seen map[[2]*upstream.Schema]bool, place string) string {
	nested := place != "the body"
	switch {
	case record == nil || record.Withheld || nested && record.Visible != "":
		return place + ", which is not always in the record"
	case body.Additional != nil:
		return place + ", which is a map"
	case body.Choice != nil || record.Choice != nil:
		return place + ", which is one of several schemas"
	case seen[[2]*upstream.Schema{body, record}]:
		return ""
	}
	seen[[2]*upstream.Schema{body, record}] = true
	for _, p := range body.Properties {
		if p.Schema.Refused != "" || p.Name == body.Tenant || p.Name == body.AlsoTenant {
			continue
		}
		below, of, types := strings.TrimPrefix(place+"."+p.Name, "the body."), record.Property(p.Name), p.Schema.Types
		if types&upstream.TypeNumber != 0 {
			types |= upstream.TypeInteger
		}
		switch {
		case of == nil || of.Internal:
			return below + ", which is not in the record"
		case nested && of.As != "":
			return below + ", which is text from outside in an object"
		case isLossy(of):
			return below + ", of which several values become one"
		case of.Schema.Types&^types&^upstream.TypeNull != 0:
			return below + ", which can have another type in the record"
		case of.Schema.Types&^types != 0 && (p.Required || p.Default != nil):
			return below + ", whose null cannot be written"
		}
		if lost := firstUnreadable(p.Schema, of.Schema, seen, below); lost != "" {
			return lost
		}
	}
	if body.Items != nil {
		return firstUnreadable(body.Items, record.Items, seen, place+"[]")
	}
	return ""
}

// isLossy reports whether several values of the data service become the same value.
func isLossy(p *upstream.Property) bool {
	f := p.From
	switch {
	case f == nil:
		return false
	case f.As == upstream.ConvertUnix || f.As == upstream.ConvertUnixMilli:
		return p.Schema.Format == upstream.FormatDate
	case f.Values != nil: // null is not converted back
		return len(f.ReverseValues) < len(f.Values) || slices.Contains(slices.Collect(maps.Values(f.Values)), "null")
	}
	return f.As == upstream.ConvertURL
}

// checkPlaceholders checks the members in braces of a text: of the record, or parameters of the path.
func (c *compiler) checkPlaceholders(n node, record *upstream.Schema, op *upstream.Operation) {
	for _, found := range inBraces.FindAllStringSubmatch(n.text(), -1) {
		if record != nil && record.Property(found[1]) != nil && record.Property(found[1]).As != "" {
			c.fault(n, "{%s} is text from outside, which could say anything here", found[1])
		} else if (record == nil || record.Property(found[1]) == nil) && !slices.ContainsFunc(op.PathParams, func(p upstream.Param) bool { return p.Name == found[1] }) {
			c.fault(n, "{%s} is neither a member of the record nor a parameter of the path", found[1])
		}
	}
}

// description returns the description of a member, or of what it refers to.
func (c *compiler) description(n node) string {
	for range maxReferences {
		text, ref := n.get("description").text(), n.get("$ref").text()
		if text != "" || ref == "" {
			return oneLine(text)
		}
		n = c.lookup(ref)
	}
	return ""
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func lowerFirst(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	return strings.ToLower(text[:size]) + text[size:]
}

// snakeCase returns listOrders as list_orders.
func snakeCase(id string) string {
	var b strings.Builder
	for i, r := range id {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
