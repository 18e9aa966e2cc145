package conform

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/go-json-experiment/json/jsontext"
)

// Report is the result of a Run.
type Report struct {
	Operations  int       `json:"operations"` // of data services in the definition
	Requests    int       `json:"requests"`
	Succeeded   int       `json:"succeeded"`   // requests with a response of success: without any, nothing was tested
	Faults      []Finding `json:"faults"`      // responses that the gateway rejects, or that give callers wrong data
	Hints       []Finding `json:"hints"`       // what may be right, but should be looked at
	Skipped     []string  `json:"skipped"`     // what could not be tested, and why
	Interrupted bool      `json:"interrupted"` // not everything was tested
}

// Finding is a fault or a hint.
type Finding struct {
	Rule      string `json:"rule"` // the name of one of Rules
	Operation string `json:"operation"`
	Request   string `json:"request"`            // method and target; {name} stands for a value of the service
	Business  string `json:"business,omitempty"` // A or B
	Pointer   string `json:"pointer,omitempty"`  // JSON Pointer (RFC 6901) in the response's body
	Expected  string `json:"expected"`
	Got       string `json:"got"`
	Value     string `json:"value,omitempty"` // the beginning, with Options.ShowValues
	Fix       string `json:"fix"`
	Times     int    `json:"times"` // how often it was found; the other fields are of the first time
}

// Rule is something that a service must do.
type Rule struct {
	Name string
	What string
	Fix  string
	Hint bool // breaking it is a hint
}

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		{"connection", "every request gets a complete HTTP/1.1 response in time", "Respond in time, and correct the server's framing: Content-Length, chunks and connections that end early.", false},
		{"request-id", "a response has the `X-Request-Id` of its request, or none", "Send back the X-Request-Id of the request that the response is for.", false},
		{"redirect", "no response is a redirect", "Respond at the path itself.", false},
		{"status", "the status is one that the operation documents", "Respond with a documented status, or document this one.", false},
		{"media-type", "the `Content-Type` is the documented one, in UTF-8", "Set the Content-Type to the documented media type, and a Content-Encoding only if the body has it.", false},
		{"json", "the body is one JSON document in UTF-8 without repeated names", "Write the body with a JSON encoder, once and completely.", false},
		{"schema", "members have the documented types and values, and none is missing", "Send what the definition says, or correct the definition.", false},
		{"header", "`ETag` and `Location` are what the gateway passes on", "Send an ETag in double quotes, and as Location the path of an operation.", false},
		{"tenant", "every record names the business that asked", "Select the records by the business of the request, and name it in each of them.", false},
		{"record", "every record of a list can be read by its ID, and the response is that record", "Look up the record by the ID in the path.", false},
		{"at-most", "a list has at most as many records as were asked for", "Limit the list by the parameter.", false},
		{"order", "a list is sorted, newest first", "Sort by the members of x-gatehouse-records, descending, and then by ID.", false},
		{"page-echo", "the response names the page that was requested", "Send back the numbers of the request.", false},
		{"paging", "pages neither repeat nor lose records, one past the end is empty, and totals are right", "Select each record once, sort by the creation time and then by ID, skip the records of the pages before, and count by the same conditions.", false},
		{"cursor", "cursors lead through the whole list once, and end", "Make the cursor from the last record of the page, and leave it out at the end.", false},
		{"parameter", "every value that the definition allows is accepted", "Accept the value, or restrict the parameter in the definition.", false},
		{"filter", "a filter leaves the records with the value, and only them", "Compare the member with the parameter of the same name.", false},
		{"isolation", "a business gets nothing of another one, whatever ID it asks for", "Select by the business of the request in every query, by ID and Idempotency-Key too. If the records are everybody's, give the operation x-gatehouse-tenant: none.", false},
		{"unknown-business", "without a business, or for one that does not exist, no records come", "Reject requests without a business that the service knows.", false},
		{"unknown-id", "an ID that does not exist is a 4xx, or an empty list", "Respond with 404.", false},
		{"conditional", "`If-None-Match` with the current `ETag` is 304, where both are documented, and two businesses have one `ETag` only for equal responses", "Send an ETag that is a hash of the content, or has the business and a version, and compare If-None-Match with it.", false},
		{"assertion", "a valid assertion is accepted, and any other gets 401", "Verify the assertion as https://github.com/gatehouse-gateway/gatehouse/blob/main/docs/data-services.md says, all six steps, and compare op if there are writes.", false},
		{"create", "what was created can be read, and is in its list", "Store the record before responding, and list it.", false},
		{"idempotency", "one `Idempotency-Key` creates one record, also when requests race, and a PUT adds nothing when it is repeated", "Store the key with the record in one transaction, and repeat the response. Replace what a PUT sends.", false},
		{"precondition", "a write with an old `If-Match` changes nothing", "Compare If-Match with the current ETag in the transaction that changes the record.", false},
		{"change", "a PUT replaces the record, and a PATCH changes only what it names", "Store what a request says, keep what a PATCH does not name, and nothing else in a PUT.", false},
		{"delete", "what was created can be deleted, and is gone then", "Find the record by the business of the request and ID, and delete it before responding.", false},
		{"shared-record", "no other business gets the record of `A` whose ID no list has", "Select by the business of the request and by ID. If the record is everybody's, give the operation x-gatehouse-tenant: none.", true},
		{"stored", "a record has the values that were sent for it", "Store what a request says, and keep what a PATCH does not name.", true},
		{"weak-etag", "an `ETag` for `If-Match` is a strong one", "Send a strong ETag: by RFC 9110, section 13.1.1, If-Match never matches a weak one.", true},
		{"undocumented", "all members are documented, and none is `writeOnly`: the gateway removes others", "Leave the member out, or document it.", true},
		{"compressed", "the body is not compressed: the gateway asks for `identity`", "Do not compress for the gateway.", true},
		{"slow", "responses take less than five seconds", "Respond faster: callers wait for it, and get 504 after the gateway's timeout.", true},
		{"no-request-id", "responses have `X-Request-Id`", "Send back the X-Request-Id of the request: the gateway notices confused responses by it.", true},
		{"no-idempotency", "operations that create document `Idempotency-Key`", "Document the header Idempotency-Key, so that callers can repeat a request.", true},
	}
}

// addFinding adds a finding about an exchange, or counts it if it is there already.
func (r *run) addFinding(rule string, x *exchange, f Finding) {
	list := &r.report.Faults
	for _, known := range Rules() {
		if f.Rule = rule; known.Name == rule {
			f.Fix = known.Fix
			if known.Hint {
				list = &r.report.Hints
			}
		}
	}
	f.Operation, f.Business, f.Request, f.Times = x.op.ID, x.label, x.requestLine(r.ShowValues), max(f.Times, 1)
	if !r.ShowValues {
		f.Value = ""
	}
	place := regexp.MustCompile("/[0-9]+").ReplaceAllString(f.Pointer, "/0")
	key := fmt.Sprint(rule, x.op.ID, place, f.Expected) + map[string]string{"parameter": x.param, "connection": f.Got, "status": f.Got}[rule]
	if rule == "no-request-id" || rule == "compressed" {
		key = rule // about the whole service, reported once
	}
	if i, ok := r.positions[key]; ok {
		(*list)[i].Times += f.Times
		return
	}
	r.positions[key] = len(*list)
	*list = append(*list, f)
}

// requestLine returns method and target. A value that the service sent is replaced by the parameter's name, unless values may be shown.
func (x *exchange) requestLine(values bool) string {
	if values || !x.ofRecords {
		return x.op.Method + " " + x.target
	}
	text := x.op.Method + " " + x.op.Path
	if x.query != "" && x.recordParam == "" {
		text += "?" + x.query
	} else if x.query != "" {
		text += "?" + x.recordParam + "={" + x.recordParam + "}"
		if x.mayBeRefused && x.param != x.recordParam { // a filter, with a cursor
			text += "&" + x.param + "={" + x.param + "}"
		}
	}
	return text
}

// maxShown is the maximum length of an excerpt in characters.
const maxShown = 80

// excerpt returns the beginning of a text.
func excerpt(text string) string {
	if runes := []rune(strings.ToValidUTF8(text, "\ufffd")); len(runes) > maxShown {
		return string(runes[:maxShown-1]) + "…"
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// describe returns the type of a value, and the beginning of its JSON.
func describe(value any, exists bool) (kind, text string) {
	if !exists {
		return "nothing: the member is missing", ""
	}
	switch v := value.(type) {
	case nil:
		kind = "null"
	case string:
		kind = fmt.Sprintf("a string of %d characters", len([]rune(v)))
	case json.Number:
		if kind = "a number"; !strings.ContainsAny(v.String(), ".eE") {
			kind = fmt.Sprintf("a whole number of %d digits", len(strings.TrimPrefix(v.String(), "-")))
		}
	case bool:
		kind = "a boolean"
	case []any:
		kind = fmt.Sprintf("an array of %d items", len(v))
	case map[string]any:
		kind = fmt.Sprintf("an object of %d members", len(v))
	}
	return kind, excerpt(encodeJSON(value))
}

// encodeJSON returns a decoded value as JSON.
func encodeJSON(value any) string {
	text, _ := json.Marshal(value) //nolint:errchkjson // what was decoded can be encoded
	return string(text)
}

// namesIn returns the names in a JSON Pointer.
func namesIn(pointer string) []string { return slices.Collect(jsontext.Pointer(pointer).Tokens()) }

// at returns the value that names lead to.
func at(value any, names ...string) (any, bool) {
	for _, name := range names {
		switch v := value.(type) {
		case map[string]any:
			var ok bool
			if value, ok = v[name]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// scalar returns a string or a number as text, or "".
func scalar(value any) string {
	if number, ok := value.(json.Number); ok {
		return number.String()
	}
	text, _ := value.(string)
	return text
}

// EncodeJSON writes the report as JSON.
func (r Report) EncodeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Print writes the report as text.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	for i, list := range [][]Finding{r.Faults, r.Hints} {
		for _, f := range list {
			fmt.Fprintf(&b, "%s %s: %s: %s", [...]string{"fault", "hint"}[i], f.Rule, f.Operation, f.Request)
			if f.Business != "" {
				b.WriteString(" as " + f.Business)
			}
			if f.Pointer != "" {
				b.WriteString("\n  at       " + f.Pointer)
			}
			fmt.Fprintf(&b, "\n  expected %s\n  got      %s", f.Expected, f.Got)
			if f.Times > 1 {
				fmt.Fprintf(&b, " (%d times)", f.Times)
			}
			if f.Value != "" {
				b.WriteString("\n  value    " + f.Value)
			}
			b.WriteString("\n  fix      " + f.Fix + "\n\n")
		}
	}
	for _, skipped := range r.Skipped {
		b.WriteString("skipped " + skipped + "\n")
	}
	if len(r.Skipped) > 0 {
		b.WriteString("\n")
	}
	if r.Succeeded == 0 {
		b.WriteString("No request succeeded.\n")
	}
	if r.Interrupted {
		b.WriteString("Interrupted: not everything was asked.\n")
	}
	fmt.Fprintf(&b, "%s, %s: %s, %s\n", english.Plural(r.Operations, "operation", ""), english.Plural(r.Requests, "request", ""),
		english.Plural(len(r.Faults), "fault", ""), english.Plural(len(r.Hints), "hint", ""))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
