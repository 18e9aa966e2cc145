package definition_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// FuzzMappedResponses compares responses that are mapped while they are checked with those that a naive implementation maps, and a definition
// without mapping checks.
func FuzzMappedResponses(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		choices := make([]byte, 300)
		for i := range choices {
			if choices[i] = byte(random.Uint32()); random.IntN(4) > 0 { // mostly valid
				choices[i] %= 12
			}
		}
		f.Add(choices, uint16(random.Uint32()))
	}
	mapped, err := definition.Load(definition.File{Name: "legacy.yaml", Text: []byte(legacy)}, definition.Options{})
	require.NoError(f, err)
	n := newDecodedMapping(f)
	plain, err := definition.Load(definition.File{Name: "plain.yaml", Text: n.plain}, definition.Options{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, choices []byte, mutation uint16) {
		g := legacyGenerator{choices}
		isList := g.choose(2) == 1
		target := "/v1/invoices/7"
		if isList {
			target = fmt.Sprintf("/v1/invoices?page=%d&per_page=%d", g.choose(3)+1, g.choose(5)+1)
		}
		body := []byte(g.response(isList))
		if mutation%4 == 0 && len(body) > 0 {
			body[int(mutation)%len(body)] ^= byte(mutation >> 8)
		}
		op, q := operationOf(t, mapped, http.MethodGet, target)
		plainOp, plainQ := operationOf(t, plain, http.MethodGet, target)
		var got, want bytes.Buffer
		_, gotErr := new(upstream.Contract).Check(&got, op, &op.Responses[0], q, "17", body)
		published, wantErr := n.response(isList, body, q)
		if wantErr == nil {
			_, wantErr = new(upstream.Contract).Check(&want, plainOp, &plainOp.Responses[0], plainQ, "17", published)
		}
		require.Equal(t, wantErr == nil, gotErr == nil, "%s\n%s\n%v\n%v", body, published, wantErr, gotErr)
		encoded := func(b []byte) string { // with strings in one form
			formatted, _ := jsontext.AppendFormat(nil, b)
			return string(formatted)
		}
		require.Equal(t, encoded(want.Bytes()), encoded(got.Bytes()), "%s\n%s", body, published)
	})
}

// legacyGenerator generates what the legacy service may send. Each choice is a byte of the input, or 0 at its end.
type legacyGenerator struct{ choices []byte }

func (g *legacyGenerator) choose(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := int(g.choices[0])
	g.choices = g.choices[1:]
	return c % n
}

// of returns the first text, mostly, or another one.
func (g *legacyGenerator) of(usual string, others ...string) string {
	if i := g.choose(16); i >= 12 {
		return others[g.choose(len(others))]
	}
	return usual
}

func (g *legacyGenerator) object(members ...string) string {
	var kept []string
	for _, m := range members {
		switch g.choose(16) {
		case 12:
		case 13:
			kept = append([]string{m}, kept...)
		case 14:
			kept = append(kept, m, `"x`+strconv.Itoa(len(kept))+`":{"invoice_no":[1,{"st":"P"}]}`)
		default:
			kept = append(kept, m)
		}
	}
	return g.of("{", " {\n ") + strings.Join(kept, g.of(",", " , ")) + "}"
}

func (g *legacyGenerator) record() string {
	var lines []string
	for range g.choose(4) {
		lines = append(lines, g.object(`"product":`+g.of(g.object(`"code":`+g.of(`"x"`, `1`, `"\u00e4"`, `null`)), `null`, `"x"`, `[]`), `"qty":`+g.of("2", "2.5", "-0", `"2"`), `"sku":"no"`))
	}
	return g.object(
		`"invoice_no":`+g.of("7", `"7"`, "8", "7.0", "null", `"\u0037"`, "true", "[7]"),
		`"serial":`+g.of(`"12"`, "12", `"1e2"`, `" 1"`, `""`, `"x"`, "null", "-0", `"-0"`),
		`"cust":`+g.of(g.object(`"nm":`+g.of(`"A"`, `"\n"`, `"`+strings.Repeat("ä", 21)+`"`, "null", "{}"), `"contact":`+g.of(g.object(`"mail":`+g.of(`"a@b"`, "null", "1")), "null", "3")), "null", `"x"`, "[]"),
		`"total_cents":`+g.of("1250", "-5", "0", "-0", `"99"`, "1.5", "1e3", "null", "123456789012345678", "1234567890123456789", "{}", `"+1"`),
		`"disc_cents":`+g.of("5", "-1205", `"x"`, "null"),
		`"created":`+g.of("1700000000", "1", `"1700000001"`, "-1", "253402300799", "253402300800", "1.5", "null", "true"),
		`"due_ms":`+g.of("1700000000123", "0", "-1", "null", `"x"`),
		`"st":`+g.of(`"O"`, `"P"`, "9", `"9"`, `"Q"`, "null", `"\u004f"`, "[]"),
		`"act":`+g.of(`"Y"`, `"N"`, "true", `""`),
		`"pdf":`+g.of(`"/v2/accounts/17/invoices/7.json"`, `"https://h/v2/accounts/17/invoices/a~b.json"`, `"/v2/accounts/18/invoices/7.json"`, `"/v2/accounts/17/invoices/.json"`, `"/v1/invoices/3"`, `"x y"`, "1", "null"),
		`"lines":[`+strings.Join(lines, ",")+`]`,
		`"note":`+g.of(`"n"`, "1", "null"), `"status":"paid"`, `"customer":{"name":1}`,
	)
}

func (g *legacyGenerator) response(isList bool) string {
	if !isList {
		return g.object(`"data":`+g.of(g.record(), "null", "[]"), `"ok":true`)
	}
	var records []string
	for range g.choose(5) {
		records = append(records, g.record())
	}
	return g.object(
		`"meta":`+g.of(g.object(`"total":`+g.of("5", "0", "-1", `"11"`, "1.0", "null"), `"next":`+g.of(`"abc"`, "null", "1")), "null", "{}", "[]"),
		`"data":`+g.of(g.object(`"items":`+g.of("["+strings.Join(records, ",")+"]", "null", "{}")), "null"), `"invoices":[]`,
	)
}

// decodedMapping maps decoded values, by the text of the definition.
type decodedMapping struct {
	schemas map[string]any
	plain   []byte // the definition without mapping
}

func newDecodedMapping(t testing.TB) *decodedMapping {
	t.Helper()
	var document map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(legacy), &document))
	var root yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(legacy), &root))
	var strip func(*yaml.Node)
	strip = func(n *yaml.Node) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); {
			if name := n.Content[i].Value; name == "x-gatehouse-from" || name == "from" {
				n.Content = append(n.Content[:i], n.Content[i+2:]...)
				continue
			}
			i += 2
		}
		for _, in := range n.Content {
			strip(in)
		}
	}
	strip(&root)
	plain, err := yaml.Marshal(&root)
	require.NoError(t, err)
	return &decodedMapping{document["components"].(map[string]any)["schemas"].(map[string]any), plain}
}

var (
	theirInvoice = regexp.MustCompile(`^/v2/accounts/17/invoices/([A-Za-z0-9._~-]+)\.json$`)
	ourInvoice   = regexp.MustCompile(`^/v1/invoices(?:/([A-Za-z0-9._~-]+))$`)
)

var errNotMapped = errors.New("cannot be mapped")

func (n *decodedMapping) response(isList bool, body []byte, q upstream.Query) ([]byte, error) {
	if !jsontext.Value(body).IsValid() {
		return nil, errNotMapped
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var sent any
	if err := d.Decode(&sent); err != nil {
		return nil, err
	}
	of := func(v any, names ...string) (any, bool) { return memberAt(v, names) }
	if !isList {
		data, ok := of(sent, "data")
		if !ok {
			return nil, errNotMapped
		}
		return n.encode(n.value("Invoice", data, q))
	}
	items, ok := of(sent, "data", "items")
	if !ok {
		return nil, errNotMapped
	}
	invoices := items
	if list, ok := items.([]any); ok {
		mapped := []any{}
		for _, item := range list {
			v, err := n.value("Invoice", item, q)
			if err != nil {
				return nil, err
			}
			mapped = append(mapped, v)
		}
		invoices = mapped
	}
	page, err := n.object(n.schemas["Pagination"].(map[string]any), nil, sent, q)
	if err != nil {
		return nil, err
	}
	return n.encode(map[string]any{"invoices": invoices, "pagination": page}, nil)
}

func (n *decodedMapping) encode(v any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func (n *decodedMapping) value(schema any, v any, q upstream.Query) (any, error) {
	if name, ok := schema.(string); ok {
		schema = n.schemas[name]
	}
	s := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		return n.value(strings.TrimPrefix(ref, "#/components/schemas/"), v, q)
	}
	switch v := v.(type) {
	case map[string]any:
		if s["properties"] == nil {
			return v, nil
		}
		return n.object(s, v, v, q)
	case []any:
		if s["items"] == nil {
			return v, nil
		}
		var mapped []any
		for _, item := range v {
			m, err := n.value(s["items"], item, q)
			if err != nil {
				return nil, err
			}
			mapped = append(mapped, m)
		}
		if mapped == nil {
			return []any{}, nil
		}
		return mapped, nil
	default:
		return v, nil
	}
}

// object maps the members of an object. frame is where its pointers begin.
func (n *decodedMapping) object(s, own map[string]any, frame any, q upstream.Query) (map[string]any, error) {
	out := map[string]any{}
	for name, schema := range s["properties"].(map[string]any) {
		p := schema.(map[string]any)
		from, mapped := p["x-gatehouse-from"]
		if name == "customer" { // the only object that the service does not have
			part, err := n.object(p, nil, frame, q)
			if err != nil {
				return nil, err
			}
			if len(part) > 0 {
				out[name] = part
			}
			continue
		}
		if p["writeOnly"] == true {
			continue
		}
		v, ok := own[name]
		rule := map[string]any{}
		if mapped {
			place := ""
			switch from := from.(type) {
			case string:
				place = from
			case map[string]any:
				rule = from
				place, _ = from["member"].(string)
				if pages, ok := from["pages"].([]any); ok {
					place = pages[0].(string)
				}
			}
			if pointer, isPointer := strings.CutPrefix(place, "/"); isPointer {
				v, ok = memberAt(frame, strings.Split(pointer, "/"))
			} else {
				v, ok = own[place]
			}
		}
		if rule["parameter"] != nil {
			v, ok = json.Number(strconv.Itoa(q.Numbers[0])), true
		}
		if !ok {
			continue
		}
		var err error
		if v, err = n.convert(p, rule, v, q); err != nil {
			return nil, err
		}
		if out[name], err = n.value(p, v, q); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func memberAt(v any, names []string) (any, bool) {
	for _, name := range names {
		object, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = object[name]; !ok {
			return nil, false
		}
	}
	return v, true
}

func (n *decodedMapping) convert(p, rule map[string]any, v any, q upstream.Query) (any, error) {
	if v == nil || len(rule) == 0 || rule["parameter"] != nil || rule["as"] == nil && rule["values"] == nil && rule["pages"] == nil {
		return v, nil
	}
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	if isNumber {
		text = number.String()
	}
	if rule["values"] != nil {
		table := map[string]any{}
		switch values := rule["values"].(type) {
		case map[string]any:
			table = values
		case map[any]any: // with names that are numbers
			for name, ours := range values {
				table[fmt.Sprint(name)] = ours
			}
		}
		if b, isBool := v.(bool); isBool {
			text = strconv.FormatBool(b)
		} else if !isText && !isNumber {
			return nil, errNotMapped
		}
		ours, ok := table[text]
		if !ok {
			return nil, errNotMapped
		}
		return ours, nil
	}
	if !isText && !isNumber {
		return nil, errNotMapped
	}
	switch as := rule["as"]; as {
	case "string":
		return text, nil
	case "number":
		if !upstream.IsNumber(text) {
			return nil, errNotMapped
		}
		return json.Number(text), nil
	case "url":
		if !isText {
			return nil, errNotMapped
		}
		u, err := url.Parse(text)
		usable := err == nil && u.Fragment == "" && u.Opaque == ""
		if !usable {
			return nil, nil
		}
		if m := theirInvoice.FindStringSubmatch(u.EscapedPath()); m != nil && u.RawQuery == "" && strings.Trim(m[1], ".") != "" {
			return "/v1/invoices/" + m[1], nil
		}
		if m := ourInvoice.FindStringSubmatch(u.EscapedPath()); len(m) == 2 && strings.Trim(m[1], ".") != "" {
			return u.EscapedPath(), nil // it has no parameters
		}
		return nil, nil
	default:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strings.HasPrefix(text, "+") || len(strings.TrimPrefix(text, "-")) > 18 {
			return nil, errNotMapped
		}
		switch {
		case rule["pages"] != nil:
			size := int64(q.Numbers[1])
			pages := i / size
			if i > 0 && i%size != 0 {
				pages++
			}
			return json.Number(strconv.FormatInt(pages, 10)), nil
		case as == "cents":
			sign := ""
			if i < 0 {
				sign, i = "-", -i
			}
			decimal := fmt.Sprintf("%s%d.%02d", sign, i/100, i%100)
			if p["type"] == "number" {
				return json.Number(decimal), nil
			}
			return decimal, nil
		}
		at := time.Unix(i, 0)
		if as == "unix-ms" {
			at = time.UnixMilli(i)
		}
		if at = at.UTC(); at.Year() > 9999 || at.Year() < 0 {
			return nil, errNotMapped
		}
		if p["format"] == "date" {
			return at.Format("2006-01-02"), nil
		}
		return at.Format("2006-01-02T15:04:05.999Z07:00"), nil
	}
}
