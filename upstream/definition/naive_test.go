package definition_test

import (
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object, decoded.
type object = map[string]any

// naive says what must become of an answer, or of the body of a request, by the rules of docs/definition.md. It reads the decoded document and
// the decoded answer, and shares nothing with the compiler and the checker.
type naive struct {
	schemas object
	request bool             // of bodies of requests
	body    any              // of a request
	patch   bool             // the value is a merge patch: no member is required
	others  map[string]bool  // names of the alternatives for the next object
	trying  bool             // the value is in an alternative that is tried
	inner   bool             // in an object within one: the first alternative that fits is taken
	removed map[uintptr]bool // objects that an alternative removed: others must not have them
	kept    int              // how often another alternative would have had one
	other   bool             // for another library: a read-only member may be null, and lists have no bound of their own
}

// verdict is what becomes of a value.
type verdict struct {
	value                    any
	hidden, invalid, foreign bool // removed by visibility; not as documented; of another business
	lost                     int  // how many members that another alternative publishes
}

func invalid(is bool) verdict { return verdict{invalid: is} }

// expected returns the decoded result of an answer, or false if it must be rejected.
func (d *naive) expected(a *reply, body []byte) (any, bool) {
	if !jsontext.Value(body).IsValid() || deepest(body) > 64 {
		return nil, false
	}
	d.removed = map[uintptr]bool{}
	schema, most := a.schema, maxItems
	if a.list {
		list := schema
		if a.in != "" {
			list = schema["properties"].(object)[a.in].(object)
		}
		filtered := d.schemas["Thing"].(object)["x-gatehouse-visible"] != nil
		if n, ok := list["maxItems"].(json.Number); ok {
			most = integer(n)
		}
		if a.atMost {
			most = min(perPage, most)
		}
		list = maps.Clone(list)
		if list["maxItems"] = json.Number("1000"); !filtered {
			list["maxItems"] = json.Number(big.NewInt(int64(most)).String())
		}
		if schema = list; a.in != "" {
			schema = maps.Clone(a.schema)
			schema["properties"] = maps.Clone(schema["properties"].(object))
			schema["properties"].(object)[a.in] = list
		}
		v := d.judge([]object{schema}, decode(body), false)
		if v.invalid || v.foreign || v.hidden {
			return nil, false
		}
		records, _ := v.value.([]any)
		if a.in != "" {
			records, _ = v.value.(object)[a.in].([]any)
		}
		if len(a.order) > 0 {
			// A record that is published says since when; others without an instant are the oldest.
			if filtered && slices.ContainsFunc(records, func(r any) bool { return a.instant(r).IsZero() }) {
				return nil, false
			}
			slices.SortStableFunc(records, func(x, y any) int { return a.instant(y).Compare(a.instant(x)) })
		}
		if records != nil && a.in != "" {
			v.value.(object)[a.in] = records[:min(len(records), most)]
		} else if records != nil {
			v.value = records[:min(len(records), most)]
		}
		return v.value, true
	}
	v := d.judge([]object{schema}, decode(body), false)
	record, isRecord := v.value.(object)
	if a.in != "" && isRecord {
		record, isRecord = record[a.in].(object)
		if _, sent := decode(body).(object)[a.in].(object); sent && !isRecord { // it may not be seen
			return nil, false
		}
	}
	return v.value, !v.invalid && !v.foreign && !v.hidden && !(a.is && isRecord && record["id"] != "ID")
}

// instant returns the first member that a list is sorted by and that is not null.
func (a *reply) instant(record any) (at time.Time) {
	for _, name := range a.order {
		if text, ok := record.(object)[name].(string); ok {
			at, _ = time.Parse(time.RFC3339Nano, text)
			break
		}
	}
	return at
}

// accepted returns the decoded body of a request that the data service gets, or false if the body must be refused.
func (d *naive) accepted(a *reply, body []byte) (any, bool) {
	if !jsontext.Value(body).IsValid() || deepest(body) > 48 {
		return nil, false
	}
	d.patch = a.method == http.MethodPatch
	d.body = decode(body)
	v := d.judge([]object{a.schema}, d.body, true)
	d.patch = false
	return v.value, !v.invalid
}

// whole lets what is in the value be no patch itself, until the result is called.
func (d *naive) whole() func() {
	patch := d.patch
	d.patch = false
	return func() { d.patch = patch }
}

// refuses reports whether a member is none that callers may set.
func (d *naive) refuses(schemas []object) bool {
	return flagged(schemas, "x-gatehouse-internal") || d.withheld(schemas)
}

// withheld reports whether only the other side sees values with these schemas: they are readOnly in a request, or writeOnly in a response.
// What is said of the items of an array or of all alternatives but null is said of the whole.
func (d *naive) withheld(schemas []object) bool {
	parts := d.parts(schemas)
	if flagged(parts, map[bool]string{true: "readOnly", false: "writeOnly"}[d.request]) {
		return true
	}
	var items []object
	for _, s := range parts {
		if of, ok := s["items"].(object); ok {
			items = append(items, of)
		}
		values := slices.DeleteFunc(slices.Concat(memberPublishers(s["oneOf"]), memberPublishers(s["anyOf"])), func(s object) bool { return s["type"] == "null" })
		if len(values) > 0 && !slices.ContainsFunc(values, func(s object) bool { return !d.withheld([]object{s}) }) {
			return true
		}
	}
	return items != nil && d.withheld(items)
}

// moderate reports whether all numbers in a value are ones that every program can read.
func moderate(v any) bool {
	switch v := v.(type) {
	case json.Number:
		_, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e")
		if len(v) > 64 || len(strings.TrimLeft(exponent, "+-")) > 3 {
			return false
		}
		size := new(big.Rat).Abs(rational(v))
		return size.Sign() == 0 || size.Cmp(rational(json.Number("1e308"))) < 0 && size.Cmp(rational(json.Number("1e-309"))) >= 0
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !moderate(item) })
	case object:
		return moderate(slices.Collect(maps.Values(v)))
	}
	return true
}

func decode(body []byte) (v any) {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// deepest returns the number of levels of objects and arrays.
func deepest(body []byte) (most int) {
	depth, d := 0, json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	for t, err := d.Token(); err == nil; t, err = d.Token() {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
			most = max(most, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return most
}

func integer(n any) int {
	i, err := n.(json.Number).Int64()
	if err != nil {
		panic(err)
	}
	return int(i)
}

// memberPublishers returns a list of schemas.
func memberPublishers(v any) (all []object) {
	list, _ := v.([]any)
	for _, s := range list {
		all = append(all, s.(object))
	}
	return all
}

func (d *naive) target(s object) object {
	return d.schemas[strings.TrimPrefix(s["$ref"].(string), "#/components/schemas/")].(object)
}

// parts returns all schemas that hold at once, without references and allOf, which are followed.
func (d *naive) parts(schemas []object) (all []object) {
	for _, s := range schemas {
		if s["$ref"] == nil && s["allOf"] == nil {
			all = append(all, s)
			continue
		}
		if s["$ref"] != nil {
			all = append(all, d.parts([]object{d.target(s)})...)
		}
		all = append(all, d.parts(memberPublishers(s["allOf"]))...)
		own := maps.Clone(s)
		delete(own, "$ref")
		delete(own, "allOf")
		all = append(all, own)
	}
	return all
}

// types returns the types that a schema names, or nil if it names none.
func types(s object) (names []any) {
	switch t := s["type"].(type) {
	case string:
		return []any{t}
	case []any:
		return t
	}
	for _, value := range possible(s) {
		names = append(names, map[string]string{"s": "string", "j": "number", "b": "boolean"}[reflect.TypeOf(value).String()[:1]])
	}
	switch {
	case names != nil:
	case s["properties"] != nil || s["additionalProperties"] != nil:
		names = []any{"object"}
	case s["items"] != nil:
		names = []any{"array"}
	}
	return names
}

// possible returns the values of enum and const.
func possible(s object) []any {
	values, _ := s["enum"].([]any)
	if constant, ok := s["const"]; ok {
		values = append(slices.Clip(values), constant)
	}
	return values
}

// null reports whether null is possible.
func (d *naive) null(s object) bool {
	if s["nullable"] == true {
		return true
	}
	all := func(list []object) bool { return !slices.ContainsFunc(list, func(s object) bool { return !d.null(s) }) }
	ok := (types(s) == nil || slices.Contains(types(s), any("null"))) && all(memberPublishers(s["allOf"])) && (s["$ref"] == nil || d.null(d.target(s)))
	for _, keyword := range []string{"oneOf", "anyOf"} {
		ok = ok && (s[keyword] == nil || slices.ContainsFunc(memberPublishers(s[keyword]), func(s object) bool { return d.null(s) && !d.withheld([]object{s}) }))
	}
	return ok
}

var whole = regexp.MustCompile(`^-?[0-9]{1,18}$`)

// typed reports whether a schema's types allow the value. With likely, any number may be an integer.
func typed(s object, v any, likely bool) bool {
	names := types(s)
	has := func(name string) bool { return names == nil || slices.Contains(names, any(name)) }
	switch v := v.(type) {
	case string:
		return has("string")
	case bool:
		return has("boolean")
	case json.Number:
		return has("number") || has("integer") && (likely || whole.MatchString(string(v)))
	case []any:
		return has("array")
	default:
		return has("object")
	}
}

// judge says what becomes of a value for which all schemas hold. If strict, members that are not documented are invalid.
func (d *naive) judge(schemas []object, v any, strict bool) verdict {
	if d.request && !moderate(v) {
		return invalid(true)
	}
	if v == nil {
		return invalid(slices.ContainsFunc(schemas, func(s object) bool { return !d.null(s) }))
	}
	parts := d.parts(schemas)
	if i := slices.IndexFunc(parts, isChoice); i >= 0 {
		return d.choose(parts, i, v, strict)
	}
	if slices.ContainsFunc(parts, func(s object) bool { return !typed(s, v, false) }) {
		return invalid(true)
	}
	switch v := v.(type) {
	case object:
		return d.object(parts, v, strict)
	case []any:
		return d.array(parts, v, strict)
	default:
		return verdict{value: v, invalid: slices.ContainsFunc(parts, func(s object) bool { return !scalar(s, v) })}
	}
}

func isChoice(s object) bool { return s["oneOf"] != nil || s["anyOf"] != nil }

// alternatives returns for each alternative of the i-th part the schemas that hold then.
func (d *naive) alternatives(parts []object, i int) (all [][]object, choice object) {
	own := maps.Clone(parts[i])
	keyword := "oneOf"
	if own[keyword] == nil {
		keyword = "anyOf"
	}
	delete(own, keyword)
	for _, alternative := range memberPublishers(parts[i][keyword]) {
		if !d.withheld([]object{alternative}) {
			all = append(all, append(append(slices.Clone(parts[:i]), own, alternative), parts[i+1:]...))
		}
	}
	return all, parts[i]
}

func (d *naive) choose(parts []object, i int, v any, strict bool) verdict {
	all, choice := d.alternatives(parts, i)
	o, isObject := v.(object)
	discriminator, _ := choice["discriminator"].(object)
	if isObject && discriminator != nil {
		name, _ := o[discriminator["propertyName"].(string)].(string)
		target, ok := discriminator["mapping"].(object)[name].(string)
		for _, schemas := range all {
			if to := schemas[i+1]["$ref"].(string); ok && strings.HasSuffix(to, "/"+target) || to == target {
				return d.judge(schemas, v, strict)
			}
		}
		return invalid(true)
	}
	if isObject {
		if schemas, decided := d.byConstant(all, o); decided {
			if schemas == nil {
				return invalid(true)
			}
			return d.judge(schemas, v, strict)
		}
	}
	all = slices.DeleteFunc(all, func(schemas []object) bool {
		return !d.fits(schemas, v)
	})
	if len(all) == 1 {
		return d.judge(all[0], v, strict)
	}
	foreign := false // one seen on the way rejects the answer, too
	makeshift := verdict{invalid: true}
	names := d.others
	defer func(trying, inner bool) { d.trying, d.inner = trying, inner }(d.trying, d.inner)
	d.trying, d.inner = true, d.trying && (d.inner || names == nil)
	if names == nil {
		names = d.published(all)
	}
	for _, strictly := range []bool{true, false}[:2-map[bool]int{true: 1}[strict]] {
		for _, schemas := range all {
			d.others = names
			r := d.judge(schemas, v, strictly)
			d.others = nil
			if foreign = foreign || r.foreign; !r.invalid && (r.lost == 0 || d.inner) {
				r.foreign = foreign
				return r
			}
			if !r.invalid && (makeshift.invalid || r.lost < makeshift.lost) {
				makeshift = r
			}
		}
	}
	makeshift.foreign = foreign
	return makeshift
}

// published returns the names of members that alternatives publish.
func (d *naive) published(all [][]object) map[string]bool {
	names := map[string]bool{}
	for _, schemas := range all {
		parts := d.parts(schemas)
		if i := slices.IndexFunc(parts, isChoice); i >= 0 {
			inner, _ := d.alternatives(parts, i)
			maps.Copy(names, d.published(inner))
			continue
		}
		for _, s := range parts {
			properties, _ := s["properties"].(object)
			for name := range properties {
				if of := d.properties(parts, name); !d.refuses(of) {
					names[name] = true
				}
			}
		}
	}
	return names
}

// fits reports whether the JSON type of a value is possible.
func (d *naive) fits(schemas []object, v any) bool {
	return !slices.ContainsFunc(d.parts(schemas), func(s object) bool {
		inner := slices.Concat(memberPublishers(s["oneOf"]), memberPublishers(s["anyOf"]))
		return !typed(s, v, true) || inner != nil && !slices.ContainsFunc(inner, func(s object) bool { return d.fits([]object{s}, v) })
	})
}

// byConstant finds the alternative whose required constant the object has, where each alternative for objects has another one.
func (d *naive) byConstant(all [][]object, o object) (found []object, decided bool) {
	constants := map[any]int{}
	objects := 0
	for _, schemas := range all {
		if !d.fits(schemas, object{}) {
			continue
		}
		objects++
		parts := d.parts(schemas)
		for _, s := range d.properties(parts, "kind") {
			if values := possible(s); len(values) == 1 && isRequired(parts)["kind"] {
				constants[values[0]]++
				if o["kind"] == values[0] {
					found = schemas
				}
			}
		}
	}
	return found, objects > 1 && len(constants) == objects
}

// properties returns the schemas of a member, if one declares it: for another one, it is a further member.
func (d *naive) properties(parts []object, name string) (all []object) {
	declared := false
	for _, s := range parts {
		properties, _ := s["properties"].(object)
		further, _ := s["additionalProperties"].(object)
		if own, ok := properties[name].(object); ok {
			all, declared = append(all, own), true
		} else if len(further) > 0 {
			all = append(all, further)
		}
	}
	if !declared {
		return nil
	}
	return all
}

func isRequired(parts []object) map[string]bool {
	names := map[string]bool{}
	for _, s := range parts {
		list, _ := s["required"].([]any)
		for _, name := range list {
			names[name.(string)] = true
		}
	}
	return names
}

// additional returns the schemas of members without a name, false if they are removed.
func (d *naive) additional(parts []object) (schemas []object, keep bool) {
	for _, s := range parts {
		switch a := s["additionalProperties"].(type) {
		case object:
			keep = true
			if len(a) > 0 {
				schemas = append(schemas, a)
			}
		case bool:
			if !a {
				return nil, false
			}
			keep = true
		}
	}
	return schemas, keep && !d.withheld(schemas)
}

func flagged(schemas []object, keyword string) bool {
	return slices.ContainsFunc(schemas, func(s object) bool { return s[keyword] == true })
}

func (d *naive) array(parts []object, v []any, strict bool) (r verdict) {
	var items []object
	most, unique := maxItems, false
	if d.other {
		most = 1000
	}
	for _, s := range parts {
		if of, ok := s["items"].(object); ok {
			items = append(items, of)
		}
		if n, ok := s["maxItems"]; ok {
			most = 1 << 30
			r.invalid = r.invalid || len(v) > integer(n)
		}
		n, ok := s["minItems"]
		r.invalid = r.invalid || ok && len(v) < integer(n)
		unique = unique || s["uniqueItems"] == true
	}
	if slices.ContainsFunc(parts, func(s object) bool { return s["maxItems"] != nil }) {
		most = 1 << 30
	}
	r.invalid = r.invalid || len(v) > most
	d.others = nil
	defer d.whole()()
	result := []any{}
	for _, item := range v {
		one := d.judge(items, item, strict)
		r.invalid, r.foreign = r.invalid || one.invalid, r.foreign || one.foreign
		if one.hidden {
			continue
		}
		r.invalid = r.invalid || unique && slices.ContainsFunc(result, func(other any) bool { return equal(other, one.value) })
		result = append(result, one.value)
	}
	r.value = result
	return r
}

// object reads an object with properties, further members, or both.
func (d *naive) object(parts []object, v object, strict bool) (r verdict) {
	result, names, others := object{}, isRequired(parts), d.others
	if d.others = nil; d.patch {
		names = nil
		defer d.whole()()
	}
	further, keep := d.additional(parts)
	for name, value := range v {
		schemas := d.properties(parts, name)
		switch {
		case schemas == nil && !keep:
			r.invalid = r.invalid || strict
			if others[name] {
				r.lost++
			}
			continue
		case d.request && schemas != nil && d.refuses(schemas) && !(d.other && value == nil):
			r.invalid = true
			continue
		case schemas == nil:
			if len(further) == 0 {
				result[name] = value // any JSON
			} else if one := d.judge(further, value, strict); !one.hidden {
				r.invalid, r.foreign = r.invalid || one.invalid, r.foreign || one.foreign
				result[name] = one.value
			}
			mayBeTenant := d.request && strings.EqualFold(name, "business_id")
			outermost := mayBeTenant && reflect.ValueOf(v).Pointer() == reflect.ValueOf(d.body).Pointer()
			for _, s := range parts { // members that many readers take for a documented one
				properties, _ := s["properties"].(object)
				if mayBeTenant && (outermost || len(properties) > 0) {
					r.invalid = r.invalid || value != tenantID && value != json.Number(tenantID)
				}
				for declared := range properties {
					if strings.EqualFold(declared, name) {
						delete(result, name)
						r.invalid = r.invalid || d.request
					}
				}
			}
			continue
		case name == "business_id" && d.request:
			result[name] = value
			r.invalid = r.invalid || value != tenantID && value != json.Number(tenantID)
			continue
		case name == "business_id":
			continue
		}
		hide := d.refuses(schemas)
		if !d.request {
			schemas = slices.DeleteFunc(slices.Clone(schemas), func(s object) bool { return s["writeOnly"] == true }) // nothing is said of answers
		}
		if len(schemas) == 0 || !d.request && d.withheld(schemas) {
			continue
		}
		if hide && value == nil {
			continue
		}
		one := d.judge(schemas, value, strict)
		r.invalid, r.foreign = r.invalid || one.invalid, r.foreign || one.foreign
		if !one.hidden && !hide {
			result[name] = one.value
		}
	}
	for _, s := range parts {
		least, ok := s["minProperties"]
		r.invalid = r.invalid || ok && len(v) < integer(least)
		most, ok := s["maxProperties"]
		r.invalid = r.invalid || ok && len(v) > integer(most)
	}
	if r.value = result; d.request {
		for name := range names {
			_, ok := v[name]
			r.invalid = r.invalid || !ok && !d.refuses(d.properties(parts, name))
		}
		return r
	}
	tenant := d.properties(parts, "business_id")
	if tenant != nil && !flagged(tenant, "x-gatehouse-internal") && v["business_id"] != nil {
		result["business_id"] = tenantID
	}
	for name := range names {
		schemas := d.properties(parts, name)
		if _, ok := result[name]; !ok && !d.refuses(schemas) {
			result[name] = nil
			r.invalid = r.invalid || slices.ContainsFunc(schemas, func(s object) bool { return !d.null(s) })
		}
	}
	missing := false
	if tenant != nil {
		id, ok := v["business_id"].(string)
		if number, isNumber := v["business_id"].(json.Number); isNumber && whole.MatchString(string(number)) {
			id, ok = string(number), true
		}
		missing = !ok
		r.foreign = r.foreign || ok && id != tenantID
	}
	for _, s := range parts {
		visible, ok := s["x-gatehouse-visible"].(object)
		switch value, isText := v["visibility"].(string); {
		case !ok:
		case r.foreign || isText && !missing && !slices.Contains(visible["visibility"].([]any), any(value)):
			if d.trying {
				d.removed[reflect.ValueOf(v).Pointer()] = true
			}
			return verdict{hidden: true}
		default:
			r.invalid = r.invalid || !isText
		}
	}
	r.invalid = r.invalid || missing
	if d.trying && d.removed[reflect.ValueOf(v).Pointer()] {
		r.invalid = true
		d.kept++
	}
	return r
}

func rational(n any) *big.Rat {
	r, ok := new(big.Rat).SetString(string(n.(json.Number)))
	if !ok {
		panic(n)
	}
	return r
}

// equal compares values, numbers by what they are worth.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && rational(a).Cmp(rational(b)) == 0
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case object:
		b, ok := b.(object)
		return ok && maps.EqualFunc(a, b, equal)
	default:
		return reflect.DeepEqual(a, b)
	}
}

// scalar reports whether a scalar follows the rules of a schema.
func scalar(s object, v any) bool {
	if values := possible(s); values != nil && !slices.ContainsFunc(values, func(one any) bool { return equal(one, v) }) {
		return false
	}
	switch v := v.(type) {
	case string:
		n := utf8.RuneCountInString(v)
		least, most, pattern := s["minLength"], s["maxLength"], s["pattern"]
		return (least == nil || n >= integer(least)) && (most == nil || n <= integer(most)) &&
			(pattern == nil || compiled(pattern.(string)).MatchString(v)) && isFormat(s["format"], v)
	case json.Number:
		bounds := maps.Clone(s)
		if s["format"] == "int32" {
			if !bounded(object{"minimum": json.Number("-2147483648"), "maximum": json.Number("2147483647")}, v) {
				return false
			}
		}
		for exclusive, inclusive := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} { // OpenAPI 3.0
			if bounds[exclusive] == true {
				bounds[exclusive] = bounds[inclusive]
			}
		}
		return bounded(bounds, v)
	}
	return true
}

var compiledPatterns sync.Map // of *regexp.Regexp

func compiled(pattern string) *regexp.Regexp {
	if known, ok := compiledPatterns.Load(pattern); ok {
		return known.(*regexp.Regexp)
	}
	known, _ := compiledPatterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	return known.(*regexp.Regexp)
}

func bounded(s object, v json.Number) bool {
	c := func(keyword string) int {
		bound := rational(s[keyword])
		if v[0] == '-' && bound.Sign() >= 0 && strings.HasSuffix(keyword, "inimum") { // -0 too
			return -1
		}
		return rational(v).Cmp(bound)
	}
	return (s["minimum"] == nil || c("minimum") >= 0) && (s["maximum"] == nil || c("maximum") <= 0) &&
		(s["exclusiveMinimum"] == nil || c("exclusiveMinimum") > 0) && (s["exclusiveMaximum"] == nil || c("exclusiveMaximum") < 0)
}

// looks are what strings of the formats look like. The texts of the generator have no leap seconds and other rare cases: other tests do.
var looks = map[string]*regexp.Regexp{
	"uuid": regexp.MustCompile(`(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`), "email": regexp.MustCompile(`^[^@\x00-\x20\x7f]+@[^@\x00-\x20\x7f]+$`),
	"uri": regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20"<>\\^{|}\x60\x7f-\x{10FFFF}]+$`), "time-of-day": regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`),
	"decimal": regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`),
}

func isFormat(format any, text string) bool {
	parses := func(layout string) bool { _, err := time.Parse(layout, text); return err == nil }
	switch format {
	case "date":
		return parses(time.DateOnly)
	case "date-time":
		return parses(time.RFC3339Nano)
	case "utc-date-time":
		return parses(time.RFC3339Nano) && (strings.HasSuffix(text, "Z") || strings.HasSuffix(text, "+00:00"))
	case "time":
		return parses("15:04:05.999999999Z07:00")
	}
	look := looks[fmtName(format)]
	return look == nil || look.MatchString(text)
}

func fmtName(format any) string { name, _ := format.(string); return name }

// declares reports whether the document declares all members of a value where they are.
func (d *naive) declares(schemas []object, v any) bool {
	parts := d.parts(schemas)
	if i := slices.IndexFunc(parts, isChoice); i >= 0 {
		all, _ := d.alternatives(parts, i)
		return slices.ContainsFunc(all, func(schemas []object) bool { return d.declares(schemas, v) })
	}
	if list, ok := v.([]any); ok {
		var items []object
		for _, s := range parts {
			if of, ok := s["items"].(object); ok {
				items = append(items, of)
			}
		}
		return items != nil && !slices.ContainsFunc(list, func(item any) bool { return !d.declares(items, item) })
	}
	o, _ := v.(object)
	further, keep := d.additional(parts)
	for name, value := range o {
		declared := d.properties(parts, name)
		switch {
		case declared == nil && keep && len(further) == 0:
		case declared == nil && (!keep || !d.declares(further, value)):
			return false
		case declared != nil && (d.refuses(declared) || !d.declares(declared, value)):
			return false
		case declared != nil && name == "business_id" && value != tenantID && (!d.request || value != json.Number(tenantID)):
			return false
		}
	}
	return true
}

// excerpt returns the schema of an answer, and those that it refers to.
func (d *naive) excerpt(a *reply) []byte {
	text, _ := json.MarshalIndent(a.schema, "", " ")
	for seen, next := map[string]bool{}, text; len(next) > 0; {
		found := regexp.MustCompile(`"[A-Z][a-z]+[0-9]*"|schemas/[A-Za-z0-9]+"`).FindAll(next, -1)
		next = nil
		for _, match := range found {
			name := strings.Trim(strings.TrimPrefix(string(match), "schemas/"), `"`)
			if schema := d.schemas[name]; schema != nil && !seen[name] {
				more, _ := json.MarshalIndent(schema, "", " ")
				seen[name], next = true, slices.Concat(next, []byte("\n"+name+": "), more)
			}
		}
		text = append(text, next...)
	}
	return text
}
