package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// do executes the tool with c.args and returns the structured content, after a confirmation if the call needs one.
func (c *toolCall) do(ctx context.Context) (jsontext.Value, error) {
	t := c.tool
	if !t.writes() {
		if t.handler.run != nil {
			return t.handler.run(ctx, c)
		}
		return c.read(ctx)
	}
	if proceed, err := c.confirm(ctx); err != nil || !proceed {
		declined := with(nil, "message", c.declined)
		if t.Kind == definition.KindDelete {
			declined = with(declined, "deleted", false)
		}
		return declined, err
	}
	if t.handler.run != nil {
		return t.handler.run(ctx, c)
	}
	ctx = context.WithoutCancel(ctx) // once begun, a change must not be interrupted
	switch {
	case t.Replace != nil && (!t.upserts() || c.args.all[t.changed()] != nil):
		return c.replace(ctx)
	case t.upserts() && c.args.own[argIfVersion] != nil:
		return nil, c.tool.badArguments(data.Detail{Field: argIfVersion, Problem: "requires " + t.changed() + ": a new record has no version"})
	case t.key:
		return c.create(ctx)
	}
	return c.change(ctx, t.Operation)
}

// changes returns the operation that changes a record: Replace, or else Operation.
func (t *tool) changes() *upstream.Operation { return cmp.Or(t.Replace, t.Operation) }

// upserts reports whether the tool creates a record, or changes one if the arguments name it.
func (t *tool) upserts() bool { return t.Replace != nil && t.Replace != t.Operation }

// changed returns the name of the argument with the ID of the record that Replace changes. Without it, a record is created.
func (t *tool) changed() string {
	return t.argument(t.Replace.PathParams[len(t.Replace.PathParams)-1].Name)
}

// call calls an operation. The default of r.Path is the call's path arguments.
func (c *toolCall) call(ctx context.Context, r data.Request) (jsontext.Value, error) {
	if r.Path == nil {
		r.Path = c.args.path[:len(r.Operation.PathParams)]
	}
	return c.server.o.Data.Call(ctx, c.caller, r)
}

// read calls the operation, and concurrently those of With, whose results become members of the content.
func (c *toolCall) read(ctx context.Context) (jsontext.Value, error) {
	t := c.tool
	op := t.brief
	var names []string
	if json.Unmarshal(c.args.own[argFields], &names) == nil {
		op = t.Operation.WithProperties(append(names, t.Fields[0]))
	}
	joined := make([]jsontext.Value, len(t.With))
	group, ctx := errgroup.WithContext(ctx)
	for i := range joined {
		group.Go(func() (err error) {
			defer func() {
				if v := recover(); v != nil { // which would otherwise end the process
					err = c.panicked(v)
				}
			}()
			joined[i], err = c.call(ctx, data.Request{Operation: t.With[i]})
			return err
		})
	}
	content, err := c.send(ctx, op, data.Write{})
	if err := cmp.Or(group.Wait(), err); err != nil { // a failed join cancels the first call too
		return nil, err
	}
	for i, op := range t.With {
		content = with(content, joinedName(op), joined[i])
	}
	return content, nil
}

// create calls an operation that creates or starts something, at most once for equal calls within IdempotencyWindow.
func (c *toolCall) create(ctx context.Context) (jsontext.Value, error) {
	content, i, err := c.sendOnce(ctx)
	if err != nil {
		return nil, err
	}
	id := plain(at(inner(c.tool.Operation, content), c.server.idOf(c.tool.Operation)))
	if id == "" && path.Dir(i.location) == c.address() { // the response is without the record (RFC 9110, section 15.3.2)
		id, _ = url.PathUnescape(path.Base(i.location)) // it matches a path
		content = with(content, argID, id)
	}
	c.done(content)
	c.recordCreated(ctx, i, c.address()+"/"+url.PathEscape(id))
	return i.appendTo(content), nil
}

// change calls an operation that changes or deletes something and is idempotent.
func (c *toolCall) change(ctx context.Context, op *upstream.Operation) (jsontext.Value, error) {
	w, err := c.versionedWrite(ctx, op)
	if err != nil {
		return nil, err
	}
	content, err := c.send(ctx, op, w)
	if err != nil {
		return nil, err
	}
	if c.tool.Kind == definition.KindDelete && (op.Success().Status == http.StatusAccepted || at(content, "deleted").Kind() == jsontext.KindFalse) {
		return jsontext.Value(`{"deleted":false,"message":"The service accepted this, but has not deleted it."}`), nil
	}
	c.done(content)
	if c.tool.Kind == definition.KindDelete {
		return jsontext.Value(`{"deleted":true,"message":"Deleted."}`), nil
	}
	return content, nil
}

// versionedWrite returns the options of a change. If-Match is the version that the caller sent or that the user confirmed, or else the
// current one if the operation requires the header.
func (c *toolCall) versionedWrite(ctx context.Context, op *upstream.Operation) (w data.Write, err error) {
	w = data.Write{Key: rand.Text(), IfMatch: cmp.Or(ifMatch(c.args.own[argIfVersion]), c.ifMatch)}
	if w.IfMatch == "" && c.tool.Read != nil && slices.ContainsFunc(op.Headers, func(h upstream.Param) bool { return h.Name == "If-Match" && h.Required }) {
		_, w.IfMatch, err = c.current(ctx)
	}
	return w, err
}

// versionIn returns the version of the record in a response as an entity tag, or "" if it has none.
func (c *toolCall) versionIn(response jsontext.Value) string {
	if c.tool.Version == nil {
		return ""
	}
	return ifMatch(at(response, c.tool.Version...))
}

// ifMatch returns a version as an entity tag for If-Match, or "".
func ifMatch(version jsontext.Value) string {
	if version.Kind() == jsontext.KindNull || plain(version) == "" {
		return ""
	}
	return strconv.Quote(plain(version))
}

// current reads the record that a call changes, and its version as an entity tag, which must exist.
func (c *toolCall) current(ctx context.Context) (record jsontext.Value, ifMatch string, err error) {
	t := c.tool
	response, err := c.call(ctx, data.Request{Operation: t.Read, ETag: &ifMatch, Unchanged: true})
	if err != nil {
		return nil, "", err
	}
	if ifMatch = cmp.Or(c.versionIn(response), ifMatch); ifMatch == "" {
		return nil, "", &data.Error{Kind: upstream.ErrContractViolation}
	}
	return inner(t.Read, response), ifMatch, nil
}

// send calls an operation with the path, query and body of the arguments.
func (c *toolCall) send(ctx context.Context, op *upstream.Operation, w data.Write) (jsontext.Value, error) {
	r := data.Request{Operation: op, Query: c.args.query, Write: w}
	if op.Body != nil {
		if len(c.args.body) == 0 && op.Method == http.MethodPatch {
			return nil, c.tool.noChange()
		}
		body, whole := c.args.body["*"]
		if !whole && (len(c.args.body) > 0 || op.Body.Required) {
			body = c.withTenant(op.Body.Kinds[0].Schema, encode(c.args.body))
		}
		var err error
		if r.Body, r.Media, err = c.server.o.Data.Body(op, c.caller.BusinessID, body); err != nil {
			return nil, c.tool.invalid(err, op.Body.Kinds[0].Schema, body)
		}
	}
	return c.call(ctx, r)
}

// withTenant adds the members of a body that name the business: they are not arguments of the tool.
func (c *toolCall) withTenant(s *upstream.Schema, body jsontext.Value) jsontext.Value {
	for _, name := range []string{s.Tenant, s.AlsoTenant} {
		if p := s.Property(name); name != "" && p != nil && p.Schema.Refused == "" {
			id := encode(c.caller.BusinessID)
			if number := jsontext.Value(c.caller.BusinessID); p.Schema.Types&upstream.TypeString == 0 && number.Kind() == jsontext.KindNumber {
				id = number
			}
			body = with(body, name, id)
		}
	}
	return body
}

// maxReplacements is how often replace reads and writes a record if others change it in between.
const maxReplacements = 3

// replace changes a record that the service can only replace as a whole (PUT): it reads the record, applies the arguments and writes it
// back. If-Match prevents the loss of changes by others in between.
func (c *toolCall) replace(ctx context.Context) (jsontext.Value, error) {
	t := c.tool
	expected, changes := cmp.Or(ifMatch(c.args.own[argIfVersion]), c.ifMatch), c.args.body
	if len(changes) == 0 {
		return nil, c.tool.noChange()
	}
	if t.Replace.Method == http.MethodPatch {
		return c.change(ctx, t.Replace)
	}
	for n := 1; ; n++ {
		record, version, err := c.current(ctx)
		if err != nil {
			return nil, err
		}
		if expected != "" && version != "" && expected != version { // the arguments must not be applied to another version
			return nil, &data.Error{Kind: data.ErrVersion}
		}
		whole := map[string]jsontext.Value{}
		for _, p := range t.Replace.Body.Kinds[0].Schema.Properties {
			name := p.Name
			if shown := t.Read.Record().Property(name); shown != nil {
				name = nameOf(shown) // with a prefix if it is text from outside
			}
			old, nullable := at(record, name), p.Schema.Types&upstream.TypeNull != 0
			if old != nil && (old.Kind() != jsontext.KindNull || nullable) && p.Schema.Refused == "" {
				whole[p.Name] = writable(p.Schema, old)
			}
			if value, ok := changes[p.Name]; ok {
				whole[p.Name] = merged(p.Schema, whole[p.Name], value)
			}
		}
		c.args.body = whole
		content, err := c.send(ctx, t.Replace, data.Write{Key: rand.Text(), IfMatch: cmp.Or(expected, version)})
		if err == nil || expected != "" || n == maxReplacements || !errors.Is(err, data.ErrVersion) {
			c.done(content)
			return content, err
		}
	}
}

// writable returns a value of a record without what a request body must not contain, such as read-only members.
func writable(s *upstream.Schema, v jsontext.Value) jsontext.Value {
	var items []jsontext.Value
	switch {
	case s.Items != nil && v.Kind() == jsontext.KindBeginArray && json.Unmarshal(v, &items) == nil:
		for i := range items {
			items[i] = writable(s.Items, items[i])
		}
		return encode(items)
	case len(s.Properties) > 0 && v.Kind() == jsontext.KindBeginObject:
		kept := map[string]jsontext.Value{}
		for name, value := range members(v) {
			if p := s.Property(name); p != nil && p.Schema.Refused == "" && (value.Kind() != jsontext.KindNull || p.Schema.Types&upstream.TypeNull != 0) {
				kept[name] = writable(p.Schema, value.Clone())
			}
		}
		return encode(kept)
	}
	return v
}

// merged returns the new value of a member of a body. Members of objects that value does not mention keep their old values.
func merged(s *upstream.Schema, old, value jsontext.Value) jsontext.Value {
	if len(s.Properties) == 0 || old.Kind() != jsontext.KindBeginObject || value.Kind() != jsontext.KindBeginObject {
		return value
	}
	all := map[string]jsontext.Value{}
	for name, v := range members(old) {
		all[name] = v.Clone()
	}
	for name, v := range members(value) {
		if p := s.Property(name); p != nil {
			v = merged(p.Schema, all[name], v)
		}
		all[name] = v.Clone()
	}
	return encode(all)
}

// done sets the target and the sentence of a change, for the audit log.
func (c *toolCall) done(content jsontext.Value) {
	record := inner(c.tool.Operation, content)
	if c.record != nil { // the one that the user was asked about; content may not have it
		record = c.record
	}
	id := plain(at(record, "id"))
	if n := len(c.args.path); n > 0 && c.tool.Kind != definition.KindCreate {
		id = cmp.Or(c.args.path[n-1], id)
	}
	c.target = strings.TrimSpace(c.tool.about + " " + id)
	if c.sentence = c.fill(c.tool.Does, record, false); c.sentence != "" {
		c.sentence += c.args.emptied("emptied")
	}
}

// address returns the path of the call, for RecordCreated and ForgetCreated: with its ID, a created record has the path of its DELETE.
func (c *toolCall) address() string {
	address := path.Clean(c.tool.Operation.Path)
	for i, p := range c.tool.Operation.PathParams {
		address = strings.Replace(address, "{"+p.Name+"}", url.PathEscape(c.args.path[i]), 1)
	}
	return address
}

// idOf returns the property with the ID of the records that an operation creates: the one that the GET of a single record takes.
func (s *Server) idOf(create *upstream.Operation) string {
	for _, one := range s.o.Definition.API.Operations() {
		if n := len(one.PathParams); n > 0 && path.Clean(one.Path) == path.Join(create.Path, "{"+one.PathParams[n-1].Name+"}") {
			if id := s.identifies(create, one.PathParams[n-1].Name, one); id != "" {
				return id
			}
		}
	}
	return argID
}

// inner returns the record, or the list of records, in the response of an operation.
func inner(op *upstream.Operation, response jsontext.Value) jsontext.Value {
	if res := op.Success(); res.Records != nil && res.Records.In != "" {
		return at(response, res.Records.In)
	}
	return response
}
