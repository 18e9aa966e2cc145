package conform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	maxSamples = 2   // records of a list that are requested by their IDs
	maxListed  = 100 // records of a list that are requested at once
)

// example returns the request that the reference shows, with IDs from lists of the business.
func (r *run) example(ctx context.Context, op *upstream.Operation, label string) (request, bool) {
	q := request{op: op, label: label, header: http.Header{}}
	sample := r.examples[op]
	_, q.query, _ = strings.Cut(sample.Target, "?")
	bindings, known := r.bind(ctx, op, label)
	if len(bindings) == 0 {
		return q, false
	}
	q.values, q.ofRecords = bindings[0], known
	for _, h := range sample.Headers {
		q.header.Set(h.Name, h.Value)
	}
	if sample.Body == "" {
		return q, true
	}
	if json.Unmarshal([]byte(sample.Body), &q.sent) != nil { // it is not an object
		valid := r.encode(&q, []byte(sample.Body))
		return q, valid
	}
	for name := range q.sent {
		if id, only := r.idFor(ctx, op, name, label); id != "" && replace(q.sent, name, id) {
			q.namesRecord = q.namesRecord || only
		}
	}
	return r.as(q, label)
}

// as returns the request as another business would send it.
func (r *run) as(q request, label string) (own request, ok bool) {
	q.label = label
	if q.sent == nil {
		return q, true
	}
	q.sent = maps.Clone(q.sent)
	for _, name := range []string{q.op.Body.Kinds[0].Schema.Tenant, q.op.Body.Kinds[0].Schema.AlsoTenant} {
		replace(q.sent, name, r.business(q.op, label))
	}
	encoded, err := json.Marshal(q.sent)
	return q, err == nil && r.encode(&q, encoded)
}

// encode sets the body that the gateway would send, and reports whether it accepts this one.
func (r *run) encode(q *request, body []byte) bool {
	var out bytes.Buffer
	_, err := r.contract.CheckBody(&out, q.op, http.Header{"Content-Type": {q.op.Body.Kinds[0].Media}}, r.business(q.op, q.label), body)
	q.body = out.Bytes()
	return err == nil
}

// replace sets a member that exists to a text, or to the number or boolean that the text is, and reports whether it did.
func replace(members map[string]any, name, text string) bool {
	switch members[name].(type) {
	case string:
		members[name] = text
		return true
	case float64:
		n, err := strconv.Atoi(text)
		if err == nil {
			members[name] = float64(n)
		}
		return err == nil
	case bool:
		members[name] = text == "true"
		return text == "true" || text == "false"
	}
	return false
}

// isIDName reports whether a member of a body may be an ID.
func isIDName(name string) bool {
	return slices.ContainsFunc([]string{"id", "key", "no", "number", "ref"}, func(suffix string) bool { return strings.HasSuffix(strings.ToLower(name), suffix) })
}

// idFor returns the ID of a record of the business for a member of a body that has the name of a path's parameter. The name must be that of an ID,
// because a member such as name or type is not a reference, and not that of the record itself. only means that the other business does not have
// this ID.
func (r *run) idFor(ctx context.Context, of *upstream.Operation, name, label string) (id string, only bool) {
	if !isIDName(name) {
		return "", false
	}
	for _, op := range r.operations {
		own := op.Path == of.Path || path.Clean(op.Path) == path.Clean(of.Path)+"/{"+name+"}"
		if params := idParams(op); len(params) != 1 || params[0].Name != name || op.Method != http.MethodGet || own {
			continue
		}
		bindings, known := r.bind(ctx, op, label)
		if !known {
			continue
		}
		other := map[string]string{"A": "B", "B": "A"}[label]
		return bindings[0][0], isIsolated(op) && r.B != "" && !r.hasOwn(ctx, op, op, bindings[0], other)
	}
	return "", false
}

// list returns the exchange for a list with as many records as possible or, if the service refuses that, with as many as in the example.
func (r *run) list(ctx context.Context, op *upstream.Operation, values []string, label string) *exchange {
	q := r.listRequest(op, values, label)
	large := q.query
	_, q.query, _ = strings.Cut(r.examples[op].Target, "?")
	x := r.fetch(ctx, q, "")
	if !x.ok() || q.query == large {
		return x
	}
	q.query, q.param = large, sizeParam(op).Name
	if larger := r.fetch(ctx, q, "parameter"); larger.ok() {
		return larger
	}
	return x
}

func (r *run) listRequest(op *upstream.Operation, values []string, label string) request {
	_, query, _ := strings.Cut(r.examples[op].Target, "?")
	if size := sizeParam(op); size != nil {
		query = withParam(query, size.Name, strconv.Itoa(min(bound(size, true, maxListed), maxListed)))
	}
	return request{op: op, label: label, values: values, query: query, ofRecords: len(values) > 0}
}

// withParam returns a query with a parameter set to a value.
func withParam(query, name, value string) string {
	values, _ := url.ParseQuery(query)
	values.Set(name, value)
	return values.Encode()
}

// bind returns values for the parameters of an operation's path. They are IDs from lists of the business if known is true, and otherwise
// those of the example.
func (r *run) bind(ctx context.Context, op *upstream.Operation, label string) (all [][]string, known bool) {
	params := idParams(op)
	if len(params) == 0 {
		return [][]string{nil}, false
	}
	all = [][]string{{}}
	for i, p := range params {
		list := r.listOf(op, i)
		var longer [][]string
		for _, values := range all {
			if list == nil {
				break
			}
			x := r.list(ctx, list, values, label)
			if x == nil {
				continue
			}
			var ids []string
			for _, record := range x.records {
				switch id := r.id(list, record); {
				case id == "":
				case p.Schema.InvalidReason(id) == "":
					ids = append(ids, id)
				case strings.Contains(op.Path, "{"+p.Name+"}/{"): // a part of the key, which is another member
				default:
					r.addFinding("record", x, Finding{Expected: "IDs that the paths of records can have", Got: "another one", Value: excerpt(id)})
				}
			}
			order := r.random.Perm(len(ids))
			if i == 0 && label == "A" && r.B != "" && isIsolated(list) { // IDs that only A has come first
				theirs := r.keys(r.list(ctx, list, nil, "B"))
				has := func(position int) int { return min(slices.Index(theirs, ids[position]), 0) }
				slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(has(a), has(b)) })
			}
			for _, position := range order[:min(len(ids), maxSamples)] {
				longer = append(longer, append(slices.Clone(values), ids[position]))
			}
		}
		if all = longer; len(all) == 0 {
			break
		}
	}
	if len(all) > 0 {
		return all[:min(len(all), maxSamples)], true
	}
	path, _, _ := strings.Cut(r.examples[op].Target, "?")
	values, segments := []string(nil), strings.Split(path, "/")
	for i, name := range strings.Split(op.Path, "/") {
		if i < len(segments) && slices.ContainsFunc(params, func(p upstream.Param) bool { return name == "{"+p.Name+"}" }) {
			values = append(values, segments[i])
		}
	}
	if len(values) != len(params) || label != "A" {
		return nil, false
	}
	return [][]string{values}, false
}

// listOf returns the list that has the IDs for the i-th parameter of an operation's path, or nil.
func (r *run) listOf(op *upstream.Operation, i int) *upstream.Operation {
	before, _, _ := strings.Cut(op.Path, "/{"+idParams(op)[i].Name+"}")
	if list := r.listAt(before); list != nil && len(idParams(list)) == i {
		return list
	}
	return nil
}

// listAt returns the GET of a path, with or without a slash at its end, or nil.
func (r *run) listAt(at string) *upstream.Operation {
	for _, op := range r.api.Operations() {
		if path.Clean(op.Path) == path.Clean(at) && op.Method == http.MethodGet && !op.ByGateway {
			return op
		}
	}
	return nil
}

// id returns the ID of a record of a list, or "".
func (r *run) id(list *upstream.Operation, record any) string {
	name, known, hasPath := "id", "", false
	members, _ := record.(map[string]any)
	for _, op := range r.operations {
		rest, below := strings.CutPrefix(path.Clean(op.Path), path.Clean(list.Path)+"/{")
		param, deeper, _ := strings.Cut(rest, "}")
		isMember := scalar(members[param]) != ""
		switch {
		case !below || strings.HasPrefix(deeper, "/{"):
			continue
		case deeper == "" && !isMember:
			name, hasPath = "id", true
		case deeper == "", isMember && !hasPath:
			name, hasPath = param, deeper == ""
		}
		for _, res := range op.Responses {
			if res.Records == nil {
				continue
			}
			for _, is := range res.Records.Is {
				if deeper == "" && param == is.Param {
					known = is.Property
				}
			}
		}
	}
	return scalar(members[cmp.Or(known, name)])
}

// key returns the text by which records are compared: the ID, or the whole record if it has none.
func (r *run) key(op *upstream.Operation, record any) string {
	if id := r.id(op, record); id != "" {
		return id
	}
	return canonical(op, record)
}

func (r *run) keys(x *exchange) (all []string) {
	for _, record := range cmp.Or(x, &exchange{}).records {
		all = append(all, r.key(x.op, record))
	}
	return all
}

// canonical returns a record as JSON without the member that names its business.
func canonical(op *upstream.Operation, record any) string {
	if members, ok := record.(map[string]any); ok && op.Tenant != "id" {
		rest := maps.Clone(members)
		delete(rest, op.Tenant)
		record = rest
	}
	return encodeJSON(record)
}

// isList reports whether the response of success of an operation has a list of records.
func isList(op *upstream.Operation) bool {
	s := op.Success()
	return s != nil && s.Body != nil && recordSchema(op, s) != nil
}

// recordSchema returns the schema of a list's records.
func recordSchema(op *upstream.Operation, res *upstream.DocumentedResponse) *upstream.Schema {
	s := res.Body
	if in := recordsIn(op, res); in != "" {
		s = s.Property(in).Schema
	}
	return s.Items
}

// pointerTo returns the pointer to a record, or to a member of it.
func pointerTo(x *exchange, record int, names ...string) string {
	pointer := jsontext.Pointer("")
	if x.in != "" {
		pointer = pointer.AppendToken(x.in)
	}
	if x.list {
		pointer = pointer.AppendToken(strconv.Itoa(record))
	}
	for _, name := range names {
		pointer = pointer.AppendToken(name)
	}
	return string(pointer)
}
