package conform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	headerKey      = "Idempotency-Key"
	headerMatch    = "If-Match"
	racingRequests = 5 // simultaneous requests with one Idempotency-Key
	addedRecords   = 2 // records that are added while a list is read
)

// isRecord reports whether the path of an operation is that of a record, and not of something below it, such as an order's invoice.
func isRecord(op *upstream.Operation) bool { return strings.HasSuffix(path.Clean(op.Path), "}") }

// created is a record that was created.
type created struct {
	list   *upstream.Operation
	values []string // of the parameters in the list's path
	id     string
	sent   map[string]any // the members of the body that created it
}

// withNewKey returns the request with a new Idempotency-Key, if the definition allows one of a few usual forms.
func withNewKey(q request) request {
	q.header = q.header.Clone()
	long := uuid.NewString()
	keys := []string{long, strings.ReplaceAll(long, "-", ""), long[:18], long[:8], strconv.Itoa(1e9 + int(uuid.New().ID()))}
	for _, h := range q.op.Headers {
		if i := slices.IndexFunc(keys, func(key string) bool { return h.Schema.InvalidReason(key) == "" }); h.Name == headerKey && i >= 0 {
			q.header.Set(headerKey, keys[i])
		}
	}
	return q
}

// prepared returns the request that the reference shows: for a record that was created, with its position, if the operation changes one. If it
// cannot be made, it reports why. An action gets the record that was created last, because an action such as cancel may rule out changes to it.
func (r *run) prepared(ctx context.Context, op *upstream.Operation) (q request, i int, ok bool) {
	why := noRequest
	if q, ok = r.example(ctx, op, "A"); ok && (op.Method != http.MethodPost || r.isAction(op)) {
		ok, why = false, "no record was created that it could change"
		for n, c := range r.created {
			if len(idParams(op)) == len(c.values)+1 && strings.HasPrefix(op.Path, path.Clean(c.list.Path)+"/{") && (!ok || op.Method == http.MethodPost) {
				i, ok = n, true
				q.values, q.ofRecords = append(slices.Clone(c.values), c.id), true
			}
		}
		if params := idParams(op); ok && replace(q.sent, params[len(params)-1].Name, r.created[i].id) { // the record names itself
			q, ok = r.as(q, "A")
			why = noRequest
		}
		if ok && r.accept(q) == nil {
			ok, why = false, "its path cannot have the ID of the record that was created"
		}
	}
	if !ok {
		r.skip(op, why)
	}
	return withNewKey(q), i, ok
}

const changesNothing = "the example of its request changes nothing of the record that was created, and other values are not known, or refused: give the document another"

// refusal says why an operation could not be tested: the service did not accept the example of its request.
func refusal(x *exchange) string {
	if x.err != nil {
		return "its request got no valid response"
	} else if x.status == http.StatusUnsupportedMediaType {
		return "its body got status 415: if the service expects another media type, set it with --header 'Content-Type: …'"
	}
	return fmt.Sprintf("the example of its request got status %d: give the document an example that the service accepts", x.status)
}

// probeCreate tests an operation that creates records.
func (r *run) probeCreate(ctx context.Context, op *upstream.Operation) {
	q, _, ok := r.prepared(ctx, op)
	if !ok {
		return
	}
	r.probeAssertions(ctx, q)
	list := r.listAt(op.Path)
	var before, theirs *exchange // the lists of A and B
	if list != nil {
		before = r.send(ctx, r.listRequest(list, q.values, "A"))
		if r.B != "" && len(q.values) == 0 && isIsolated(op) {
			theirs = r.send(ctx, r.listRequest(list, nil, "B"))
		}
	}
	x := r.sendAndCheck(ctx, q, "")
	switch {
	case x == nil:
		r.skip(op, noRequest)
		return
	case !x.ok():
		r.skip(op, refusal(x))
		return
	}
	r.compareStored(op, x, q.sent)
	r.probeCrossTenantCreate(ctx, q, x, list)
	made, ids := "", []string(nil)
	if before.ok() {
		made = r.madeID(x)
	}
	existed := slices.Contains(r.keys(before), made)
	if made != "" && !existed && !isWholeList(before) { // it may be on a later page: what returns a record that existed does so again
		existed = r.madeID(r.send(ctx, withNewKey(q))) == made
	}
	if existed {
		r.skip(op, "its response has a record that existed before, which must not be changed")
		return
	}
	r.probeStored(ctx, q, x, list, made)
	most := 2 // with two keys
	if op.Forwards(headerKey) {
		if before.ok() && isWholeList(before) {
			most *= len(r.added(before, r.send(ctx, before.request))) // a request may create several
		}
		ids = r.probeRepeat(ctx, q, x)
	} else {
		r.addFinding("no-idempotency", x, Finding{Expected: "the request header " + headerKey, Got: "none is documented"})
	}
	switch {
	case !before.ok():
	case made == "":
		r.skip(op, "its response has no ID, and no Location with one: what it creates is only counted")
		r.compareCreated(ctx, x, before, nil, nil, most)
	default:
		ids = append([]string{made}, ids...)
		for _, id := range slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(r.keys(before), id) }) {
			r.created = append(r.created, created{list, q.values, id, q.sent})
		}
		if r.compareCreated(ctx, x, before, theirs, ids, most); before.res.Cursor != "" {
			r.probeAdding(ctx, q, before)
		}
	}
}

// probeStored reads the record that was created, by its ID and by its Location.
func (r *run) probeStored(ctx context.Context, q request, x *exchange, list *upstream.Operation, made string) {
	n := len(q.values)
	for _, get := range r.operations {
		if made == "" || x.status == http.StatusAccepted || get.Method != http.MethodGet || !isRecord(get) || len(idParams(get)) != n+1 || r.listOf(get, n) != list {
			continue
		}
		for _, id := range slices.Compact([]string{made, cmp.Or(r.locatedID(x), made)}) {
			now := r.sendAndCheck(ctx, request{op: get, label: q.label, values: append(slices.Clone(q.values), id), ofRecords: true}, "")
			if now.isRefused() {
				r.addFinding("create", now, Finding{Expected: "the record that was created", Got: fmt.Sprintf("status %d", now.status)})
			}
			r.compareStored(q.op, now, q.sent)
		}
	}
}

// madeID returns the ID of the record that a response to a creation has, or to which its Location leads, or "".
func (r *run) madeID(x *exchange) (id string) {
	if !x.ok() {
		return ""
	}
	if len(x.records) == 1 {
		id = r.id(x.op, x.records[0])
	}
	return cmp.Or(id, r.locatedID(x))
}

// locatedID returns the ID to which the Location of a response to a creation leads, or "".
func (r *run) locatedID(x *exchange) string {
	_, location := x.res.Headers(r.api, "", r.business(x.op, x.label), x.header, r.host)
	if rest, below := strings.CutPrefix(location, path.Clean(r.target(request{op: x.op, label: x.label, values: x.values}))+"/"); below && !strings.ContainsAny(rest, "/?") {
		return rest
	}
	return ""
}

// probeCrossTenantCreate sends a request of B that names a record of A, or has an Idempotency-Key that A has used.
func (r *run) probeCrossTenantCreate(ctx context.Context, q request, first *exchange, list *upstream.Operation) {
	if r.B == "" || !isIsolated(q.op) {
		return
	}
	if !q.namesRecord && len(q.values) == 0 && q.op.Forwards(headerKey) && list != nil {
		theirs, _ := r.as(q, "B")
		own := r.sendAndCheck(ctx, theirs, "")
		if own.isRefused() && r.sendAndCheck(ctx, withNewKey(theirs), "").ok() {
			r.addFinding("isolation", own, Finding{Expected: "a record of B, although A sent the same Idempotency-Key", Got: fmt.Sprintf("status %d", own.status)})
		}
		listed := r.send(ctx, r.listRequest(list, nil, "B"))
		if id := r.madeID(own); id != "" && id == r.madeID(first) && listed.ok() && isWholeList(listed) && !slices.Contains(r.keys(listed), id) {
			r.addFinding("isolation", own, Finding{Expected: "a record of B, although A sent the same Idempotency-Key", Got: "that of A"})
		}
	}
	if !q.namesRecord && !(q.ofRecords && len(q.values) > 0) {
		return
	}
	if q.namesRecord && len(q.values) > 0 && !r.isAction(q.op) {
		own, known := r.bind(ctx, q.op, "B")
		if !known {
			return
		}
		q.values = own[0]
	} else if len(q.values) > 0 && r.hasOwn(ctx, q.op, r.listAt(q.op.Path[:strings.LastIndexByte(q.op.Path, '}')+1]), q.values, "B") {
		r.skip(q.op, sameID)
		return
	}
	if q, _ = r.as(q, "B"); q.op.Forwards(headerKey) {
		r.mustNotSucceed(ctx, q, "isolation", "a status from 400, because a record of A is named, although A sent the same Idempotency-Key")
	}
	r.mustNotSucceed(ctx, withNewKey(q), "isolation", "a status from 400, because a record of A is named")
}

// probeRepeat repeats a request, and lets requests race. It returns the IDs of the records that this has created besides the first one.
func (r *run) probeRepeat(ctx context.Context, q request, first *exchange) (ids []string) {
	repeated := r.sendAndCheck(ctx, q, "idempotency")
	id := r.madeID(first)
	same := id != "" && id == r.madeID(repeated) || bytes.Equal(repeated.body, first.body) || first.value != nil && reflect.DeepEqual(repeated.value, first.value)
	if repeated.err == nil && repeated.status != http.StatusTooManyRequests && (repeated.status != first.status || !same) {
		r.addFinding("idempotency", repeated, Finding{
			Expected: "the same response to the same Idempotency-Key", Got: fmt.Sprintf("another one, with status %d", repeated.status),
		})
	}
	if other, ok := r.withOtherBody(q, func(string) bool { return true }); ok {
		r.mustNotSucceed(ctx, other, "idempotency", "status 422, or another refusal, for an Idempotency-Key that came with another body")
	}
	exchanges := r.race(ctx, slices.Repeat([]request{withNewKey(q)}, racingRequests))
	for _, x := range exchanges {
		busy := x.status == http.StatusConflict || x.status == http.StatusTooEarly || x.status == http.StatusTooManyRequests
		if !busy {
			r.checkResponse(ctx, x, "idempotency")
		}
		if id := r.madeID(x); id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if !slices.ContainsFunc(exchanges, (*exchange).ok) {
		r.skip(q.op, "Idempotency-Key: none of the requests at a time was accepted: give the document an example that can be created twice")
	}
	if len(ids) > 1 {
		r.addFinding("idempotency", exchanges[0], Finding{
			Expected: fmt.Sprintf("one record for %d requests at a time with one Idempotency-Key", racingRequests), Got: fmt.Sprintf("%d records", len(ids)),
		})
	}
	return ids
}

// race sends requests at once, and not at the rate of others. They have been sent before, perhaps with another key.
func (r *run) race(ctx context.Context, requests []request) []*exchange {
	exchanges := make([]*exchange, len(requests))
	var racing sync.WaitGroup
	for i, q := range requests {
		exchanges[i] = r.accept(q)
		r.wait(ctx, q.op)
	}
	for i := range exchanges {
		racing.Go(func() { exchanges[i] = r.sendNow(ctx, exchanges[i]) })
	}
	racing.Wait()
	if slices.ContainsFunc(exchanges, func(x *exchange) bool { return x.repeats > 0 }) {
		r.skip(requests[0].op, "requests at the same time: the service limits them, so some were sent later")
	}
	return exchanges
}

// withOtherBody returns the request with other values in its body, if the definition allows any: of texts and whole numbers or, if none of these can
// change, of states, dates and the like. IDs, versions and parameters of the path stay. may says which members may change.
func (r *run) withOtherBody(q request, may func(name string) bool) (other request, ok bool) {
	for n := 0; n < 2 && !ok; n++ {
		for _, name := range slices.Sorted(maps.Keys(q.sent)) {
			texts := []string{fmt.Sprint(q.sent[name]) + "1"}
			if p := q.op.Body.Kinds[0].Schema.Property(name); p != nil && n > 0 {
				texts, _ = valuesOf(&upstream.Param{Schema: p.Schema})
			}
			isOfPath := slices.ContainsFunc(q.op.PathParams, func(p upstream.Param) bool { return p.Name == name })
			for _, text := range texts {
				other := q
				other.sent = maps.Clone(q.sent)
				if isOfPath || isIDName(name) || name == "version" || !may(name) || !replace(other.sent, name, text) {
					continue
				}
				if other, isValid := r.as(other, q.label); isValid && !bytes.Equal(other.body, q.body) {
					q, ok = other, true
					break
				}
			}
		}
	}
	return q, ok
}

// compareStored compares a record with what was sent for it.
func (r *run) compareStored(op *upstream.Operation, x *exchange, sent map[string]any) {
	record := x.record()
	if record == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		value, exists := record[name]
		p := cmp.Or(x.op.Record(), &upstream.Schema{}).Property(name)
		isLost := x.op.Method == http.MethodGet && !isEmpty(sent[name]) && p != nil && !p.Internal
		if !exists && !isLost || strings.Contains(encodeJSON(sent[name]), "{") { // the service may add members to an object
			continue
		}
		if kind, text := describe(value, exists); !areAlike(withFloats(value), sent[name]) {
			r.addFinding("stored", x, Finding{Pointer: pointerTo(x, 0, name), Expected: "what " + op.ID + " sent", Got: kind + map[bool]string{true: " that differs"}[exists], Value: text})
		}
	}
}

// isEmpty reports whether a service may leave out a value.
func isEmpty(value any) bool {
	return slices.Contains([]string{"null", `""`, "0", "false", "[]", "{}"}, encodeJSON(value))
}

// areAlike reports whether values are equal, or different forms of the same text, number or instant.
func areAlike(a, b any) bool {
	x, isText := a.(string)
	y, areTexts := b.(string)
	if !isText || !areTexts {
		return reflect.DeepEqual(a, b)
	}
	m, err := strconv.ParseFloat(x, 64)
	n, failed := strconv.ParseFloat(y, 64)
	t, wrong := time.Parse(time.RFC3339, x)
	u, _ := time.Parse(time.RFC3339, y)
	return err == nil && failed == nil && m == n || wrong == nil && t.Equal(u) || strings.EqualFold(strings.TrimSpace(x), strings.TrimSpace(y))
}

// added returns the keys of the records that a list has only after.
func (r *run) added(before, after *exchange) []string {
	return slices.DeleteFunc(r.keys(after), func(key string) bool { return slices.Contains(r.keys(before), key) })
}

// compareCreated compares the lists of A and B before and after A created records: at most as many as given, of which some have the IDs.
func (r *run) compareCreated(ctx context.Context, x, before, theirs *exchange, ids []string, most int) {
	after := r.sendAndCheck(ctx, r.listRequest(before.op, x.values, "A"), "")
	if !after.ok() || !after.list {
		return
	}
	asked, _ := url.ParseQuery(before.clean.Raw) // with defaults, by which the list may leave the record out
	made, s := x.record(), recordSchema(after.op, after.res)
	isSent := func(member string) bool { return x.sent[member] != nil }
	expected := isWholeList(after) || after.res.Records != nil && len(after.res.Records.Order) > 0 && !slices.ContainsFunc(after.res.Records.Order, isSent) // on the first page
	for name, values := range asked {
		isFilter := made == nil && s != nil && s.Property(name) != nil
		expected = expected && !isFilter && (made[name] == nil || slices.Contains(values, scalar(made[name])))
	}
	if isLost := func(id string) bool { return !slices.Contains(r.keys(after), id) }; expected && slices.ContainsFunc(ids, isLost) {
		r.addFinding("create", after, Finding{Expected: "the record that was created", Got: "a list without it"})
	}
	unknown := slices.DeleteFunc(r.added(before, after), func(key string) bool { return slices.Contains(ids, key) })
	if more := len(unknown) - max(0, most-len(ids)); more > 0 && most > 0 && x.op.Forwards(headerKey) && isWholeList(before) {
		r.addFinding("idempotency", after, Finding{Expected: "one new record for each Idempotency-Key", Got: fmt.Sprintf("%d more", more)})
	}
	if theirs == nil {
		return
	}
	others := r.sendAndCheck(ctx, theirs.request, "")
	got := func(record any) bool {
		return slices.Contains(ids, r.id(before.op, record)) && slices.ContainsFunc(after.records, func(own any) bool {
			return canonical(x.op, own) == canonical(x.op, record)
		})
	}
	switch {
	case slices.ContainsFunc(theirs.records, got): // B had one of its own before that is the same
	case slices.ContainsFunc(others.records, got):
		r.addFinding("isolation", others, Finding{Expected: "records of B", Got: "the record that A created"})
	case others.ok() && isWholeList(others):
		r.scoped[before.op] = true
	}
}

// probeAdding reads a list while records are added.
func (r *run) probeAdding(ctx context.Context, q request, before *exchange) {
	current := r.send(ctx, before.request)
	if !current.ok() {
		return
	}
	all := r.keys(current)
	got, done := r.follow(ctx, before.request, len(all), func(page int) {
		if page <= addedRecords {
			_ = r.send(ctx, withNewKey(q))
		}
	})
	switch lost := slices.ContainsFunc(all, func(key string) bool { return !slices.Contains(got.keys, key) }); {
	case got.err != "":
		r.addFinding("cursor", got.last, Finding{Expected: "records and a cursor that no page before had, while records are added", Got: got.err})
	case done && lost && nextCursor(current) == "" && got.last.ok():
		r.addFinding("cursor", got.last, Finding{Expected: "all records that were there before, while records are added", Got: "a list without one"})
	}
}

// version returns the version for If-Match of the record that an operation changes. current is the response to its GET. The version is the ETag, if
// one is documented: found is false if it is missing. Otherwise, it is the version of a tool, or "" if there is none.
func (r *run) version(op *upstream.Operation, current *exchange) (version string, found bool) {
	if current == nil {
		return "", true
	}
	if success := current.op.Success(); success != nil && success.ETag {
		version = current.header.Get("Etag")
		return version, current.ok() && version != ""
	}
	pointer := r.Definition.Marks[op.ID].Version
	if value, _ := at(current.value, namesIn("/"+strings.TrimPrefix(pointer, "/"))...); pointer != "" && value != nil {
		version = strconv.Quote(fmt.Sprint(value))
	}
	return version, true
}

// hasOwn reports whether a business may have a record of its own at the path of the other one's record. It must not be changed. If the list does
// not decide, get is called.
func (r *run) hasOwn(ctx context.Context, op, get *upstream.Operation, values []string, label string) bool {
	list := r.listOf(op, 0)
	if !mayCoincide(values[0]) && (list == nil || isIsolated(list)) {
		return false
	}
	var own *exchange
	if list != nil {
		own = r.send(ctx, r.listRequest(list, nil, label))
	}
	isListed := slices.Contains(r.keys(own), values[0])
	if own.ok() && (isListed || isWholeList(own)) {
		return isListed
	} // otherwise, it may be on a later page
	return get == nil || !r.send(ctx, request{op: get, label: label, values: values, ofRecords: true}).isRefused()
}

// probeChange changes or deletes a record that was created.
func (r *run) probeChange(ctx context.Context, op *upstream.Operation) {
	q, i, ok := r.prepared(ctx, op)
	if !ok {
		return
	}
	made := r.created[i]
	get := r.listAt(op.Path)
	current := func() *exchange {
		if get == nil {
			return nil
		}
		return r.sendAndCheck(ctx, request{op: get, label: "A", values: q.values, ofRecords: true}, "")
	}
	previous := current()
	own, record, names := q, previous.record(), slices.Collect(maps.Keys(q.sent))
	isShown := func(name string) bool { _, exists := record[name]; return exists }
	isSeen := slices.ContainsFunc(names, func(name string) bool { return isOther(name, record, made.sent, q.sent) })
	if !isSeen && slices.ContainsFunc(names, isShown) { // without an example, bodies of changes and creations are samples of one schema
		if q, isSeen = r.withOtherBody(q, isShown); !isSeen {
			r.skip(op, changesNothing)
		}
	}
	matches := op.Forwards(headerMatch)
	if matches {
		version, found := r.version(op, previous)
		again := current()
		other, _ := r.version(op, again)
		q.header.Set(headerMatch, version)
		isAllowed, expected, got := r.accept(q) != nil, "", "another one"
		switch {
		case !found && !previous.ok() && isRecord(op):
			r.addFinding("create", previous, Finding{Expected: "the record that was created", Got: fmt.Sprintf("status %d", previous.status)})
			return
		case !found && previous.ok():
			expected, got = "the ETag of a record, which is needed to change it", "none"
		case again.ok() && other != version && reflect.DeepEqual(again.value, previous.value):
			expected = "the same ETag while the record stays the same"
		case version == "":
			r.skip(op, "If-Match: neither an ETag of the GET of its path is documented, nor a version of its tool")
		case !isAllowed:
			expected = "a version that the definition allows as If-Match"
		}
		if expected != "" {
			r.addFinding("header", previous, Finding{Expected: expected, Got: got})
		} else if strings.HasPrefix(version, "W/") {
			r.addFinding("weak-etag", previous, Finding{Expected: "a strong ETag", Got: "a weak one"})
		}
		if matches = expected == "" && version != ""; version == "" || !isAllowed {
			q.header.Del(headerMatch)
			if slices.ContainsFunc(op.Headers, func(p upstream.Param) bool { return p.Name == headerMatch && p.Required }) {
				return
			}
		}
	}
	r.probeAssertions(ctx, q)
	listed := func() *exchange { return r.send(ctx, r.listRequest(made.list, made.values, "A")) }
	// mustNotChange sends a request that must change nothing. The status alone proves nothing: DELETE and PUT by B may succeed without A's record.
	mustNotChange := func(wrong request, rule, expected string) {
		var was *exchange // the list before what cannot be read is deleted
		if previous == nil && op.Method == http.MethodDelete {
			was = listed()
		}
		x := r.sendAndCheck(ctx, wrong, rule)
		if x == nil {
			return
		}
		done := x.ok() && (previous == nil || rule == "precondition" || op.Method == http.MethodPatch && (!isSeen || wrong.label != "B"))
		got := "status %d"
		if was != nil {
			left := listed()
			done = isRecord(op) && left.ok() && slices.Contains(r.added(left, was), made.id)
		}
		if now := current(); !done && previous.ok() && now != nil && now.err == nil {
			before, _ := r.version(op, previous)
			after, _ := r.version(op, now)
			done, got = r.changed(op, previous, now, wrong.sent) || rule == "precondition" && before != after, "status %d, and the change was made"
		}
		if _, found := r.commonRecord(previous, x); !done && found && wrong.label == "B" && (isSeen || op.Method != http.MethodPut) {
			done, got = true, "status %d, and the record of A"
		}
		if done {
			r.addFinding(rule, x, Finding{Expected: expected, Got: fmt.Sprintf(got, x.status)})
			previous = current()
			if version, _ := r.version(op, previous); matches && version != "" {
				q.header.Set(headerMatch, version)
			}
		}
	}
	isForeign := r.B != "" && isIsolated(op)
	if isForeign && r.hasOwn(ctx, op, get, q.values, "B") {
		isForeign = false
		r.skip(op, sameID)
	}
	askAsB := func() {
		if isForeign {
			foreign, _ := r.as(withNewKey(q), "B")
			mustNotChange(foreign, "isolation", "a status from 400 for a record of A, and nothing else")
		}
	}
	askAsB()
	if r.B != "" && isIsolated(op) && q.namesRecord {
		if theirs, ok := r.example(ctx, op, "B"); ok && theirs.namesRecord {
			named := withNewKey(q)
			named.body, named.sent = theirs.body, theirs.sent
			mustNotChange(named, "isolation", "a status from 400, because a record of B is named")
		}
	}
	probeStale := func(etag, what string) {
		q := withNewKey(q)
		q.header.Set(headerMatch, etag)
		mustNotChange(q, "precondition", "status 412 for an If-Match "+what)
	}
	if matches {
		probeStale(`"gatehouse-conform"`, "that the record never had")
	}
	var others *exchange
	if op.Method != http.MethodPatch {
		others = listed()
	}
	x := r.sendAndCheck(ctx, q, "")
	if x.isRefused() && !(matches && x.status == http.StatusPreconditionFailed) && !bytes.Equal(q.body, own.body) {
		r.skip(op, changesNothing)
		q.body, q.sent, isSeen = own.body, own.sent, false
		askAsB()
		x = r.sendAndCheck(ctx, withNewKey(q), "")
	}
	switch {
	case x == nil: // a change that the service should have refused has left a version that the definition does not allow
		r.skip(op, noRequest)
	case matches && x.status == http.StatusPreconditionFailed:
		r.addFinding("precondition", x, Finding{Expected: "the change, for an If-Match with the current version", Got: "status 412"})
	case op.Method == http.MethodDelete && previous.ok() && (x.status == http.StatusNotFound || x.status == http.StatusForbidden && x.res == nil):
		r.addFinding("delete", x, Finding{Expected: "success, because the business created the record and can read it", Got: fmt.Sprintf("status %d", x.status)})
	case !x.ok():
		r.skip(op, refusal(x))
	case op.Method == http.MethodDelete && (!isRecord(op) || x.status == http.StatusAccepted): // what it deletes is in no list, or still there
	case op.Method == http.MethodDelete:
		r.created = slices.Delete(r.created, i, i+1)
		if left := current(); left.ok() && !reflect.DeepEqual(left.value, previous.value) { // it is marked as deleted
			return
		} else if left.ok() {
			r.addFinding("delete", left, Finding{Expected: "status 404 for a record that was deleted", Got: fmt.Sprintf("status %d", left.status)})
		}
		r.sendAndCheck(ctx, withNewKey(q), "") // to delete a record that is gone must have a valid response, too
		left := listed()
		gone := func(id string) bool { return id != made.id && !slices.Contains(r.keys(left), id) }
		switch {
		case left.ok() && slices.Contains(r.keys(left), made.id):
			r.addFinding("delete", left, Finding{Expected: "a list without the record that was deleted", Got: "the record"})
		case left.ok() && others.ok() && isWholeList(others) && slices.ContainsFunc(r.keys(others), gone):
			r.addFinding("delete", left, Finding{Expected: "all records but the one that was deleted", Got: "fewer"})
		}
	default:
		now, old, sent := current(), q.header.Get(headerMatch), map[string]any{}
		if op.Method == http.MethodPatch {
			maps.Copy(sent, made.sent)
		}
		maps.Copy(sent, q.sent)
		if x.status == http.StatusAccepted || r.isChanged(op, previous, now, made.sent, q.sent) {
			r.created[i].sent = sent
			r.compareStored(op, now, sent)
			r.compareStored(op, x, q.sent)
		}
		version, _ := r.version(op, now)
		if was, _ := r.version(op, previous); was != "" && was == version && previous.ok() && previous.res.ETag && r.changed(op, previous, now, q.sent) {
			r.addFinding("conditional", now, Finding{Expected: "another ETag, because the record was changed", Got: "the same one"})
		}
		if op.Method == http.MethodPut {
			put := func(q request) (x, now *exchange) {
				if q = withNewKey(q); matches {
					version, _ := r.version(op, current())
					q.header.Set(headerMatch, version)
				}
				x = r.sendAndCheck(ctx, q, "")
				return x, current()
			}
			r.probeReplacement(q, put)
			before := now
			_, now = put(q)
			r.compareRepeated(before, now, others, listed(), sent)
		}
		switch {
		case !matches:
		case version == old && reflect.DeepEqual(now.value, previous.value):
			r.skip(op, changesNothing)
		default:
			previous = now
			probeStale(old, "that the record had before it was changed")
		}
	}
}

// isOther reports whether a member of a record is sent with another value than the record has, and than was sent for it at first.
func isOther(name string, record, made, sent map[string]any) bool {
	was, exists := record[name]
	return exists && !areAlike(withFloats(was), sent[name]) && !reflect.DeepEqual(made[name], sent[name])
}

// isChanged reports whether a PUT or PATCH has changed a record, and a PATCH has not emptied all that it does not name, of what created the record.
// One value in another form is not enough for a fault: the service may change it.
func (r *run) isChanged(op *upstream.Operation, previous, now *exchange, made, sent map[string]any) bool {
	was, is := previous.record(), now.record()
	if was == nil || is == nil || op.Method == http.MethodPost {
		return true
	}
	changes := func(name string) bool {
		return !strings.Contains(encodeJSON(sent[name]), "{") && isOther(name, was, made, sent)
	}
	if reflect.DeepEqual(was, is) && slices.ContainsFunc(slices.Collect(maps.Keys(sent)), changes) {
		r.addFinding("change", now, Finding{Expected: "another record after " + op.ID, Got: "the same one"})
		return false
	}
	isKept := func(name string) bool { return !isEmpty(is[name]) }
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(made)), func(name string) bool {
		_, isNamed := sent[name]
		return isNamed || name == op.Tenant || reflect.DeepEqual(was[name], is[name]) && !isKept(name) || !areAlike(withFloats(was[name]), made[name])
	})
	if op.Method == http.MethodPut || len(rest) == 0 || slices.ContainsFunc(rest, isKept) {
		return true
	}
	r.addFinding("change", now, Finding{Pointer: pointerTo(now, 0, rest[0]), Expected: "what was sent before, because " + op.ID + " does not name it", Got: "nothing, or an empty value"})
	return false
}

// probeReplacement sends a PUT with a text for all optional members that can have it, and one without them. A service that replaces the record has no
// reason to keep all of the texts: they are not its defaults. Only names and the like may be kept.
func (r *run) probeReplacement(q request, put func(request) (x, now *exchange)) {
	const text = "conform"
	if q.sent == nil {
		return
	}
	with, without := q, q
	with.sent, without.sent = maps.Clone(q.sent), maps.Clone(q.sent)
	var optional []string
	for _, p := range q.op.Body.Kinds[0].Schema.Properties {
		if s := p.Schema; !p.Required && !isIDName(p.Name) && !isKeyName(p.Name) && s.Types&upstream.TypeString != 0 && s.Known == nil && s.InvalidReason(text) == "" {
			optional, with.sent[p.Name] = append(optional, p.Name), text
			delete(without.sent, p.Name)
		}
	}
	with, isValid := r.as(with, q.label)
	without, ok := r.as(without, q.label)
	if len(optional) == 0 || !isValid || !ok {
		return
	}
	_, now := put(with)
	optional = slices.DeleteFunc(optional, func(name string) bool { return now.record()[name] != text })
	x, now := put(without)
	isGone := func(name string) bool { return now.record()[name] != text }
	if x.ok() && x.status != http.StatusAccepted && len(optional) > 0 && !slices.ContainsFunc(optional, isGone) {
		r.addFinding("change", now, Finding{Pointer: pointerTo(now, 0, optional[0]), Expected: "no value, because " + q.op.ID + " replaces the record, and did not name it", Got: "what was there before"})
	}
}

// compareRepeated compares a record and its list before and after a PUT was repeated. Of the record, it compares the lengths of arrays only, because
// services count versions and make new IDs for objects.
func (r *run) compareRepeated(before, now, others, left *exchange, sent map[string]any) {
	if others.ok() && left.ok() && isWholeList(others) && len(left.records) > len(others.records) {
		r.addFinding("idempotency", left, Finding{Expected: "as many records as before a PUT", Got: "more"})
	}
	for name, value := range sent {
		was, isArray := before.record()[name].([]any)
		asked, _ := value.([]any)
		if got, _ := now.record()[name].([]any); isArray && len(got) > max(len(was), len(asked)) {
			r.addFinding("idempotency", now, Finding{Pointer: pointerTo(now, 0, name), Expected: "as many items as before the same PUT was sent again", Got: "more"})
		}
	}
}

// changed reports whether a record was deleted, or has the values that were sent for it and had others before.
func (r *run) changed(op *upstream.Operation, was, now *exchange, sent map[string]any) bool {
	if op.Method == http.MethodDelete {
		return now.status == http.StatusNotFound || now.status == http.StatusGone
	}
	before, after := was.record(), now.record()
	for name, value := range sent {
		if after != nil && areAlike(withFloats(after[name]), value) && !areAlike(withFloats(before[name]), value) {
			return true
		}
	}
	return false
}

// withFloats returns a value that was decoded with json.Number with numbers as float64, as sent values have them.
func withFloats(value any) (v any) {
	_ = json.Unmarshal([]byte(encodeJSON(value)), &v) // it was decoded from JSON
	return v
}
