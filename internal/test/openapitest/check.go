package openapitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gatehouse-gateway/gatehouse/docs"
)

// prefix is the prefix of the document's paths.
const prefix = "/api/v1"

var public = sync.OnceValues(func() (*Document, error) { return Load(docs.OpenAPI) })

// Public is the document of the public API, read once for all tests of a process.
func Public() (*Document, error) { return public() }

// Check fails the test if a response, successful or not, does not match the document of the public API: its path, method,
// status, headers and body. The request may be a server's (with RequestURI) or a client's. The body is without transfer
// coding. Check may be called from any goroutine.
func Check(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	doc, err := Public()
	if err != nil {
		t.Errorf("docs/openapi.yaml: %v", err)
		return
	}
	if err := doc.Check(req, resp, body); err != nil {
		t.Errorf("the response does not match docs/openapi.yaml:\n%v\n%s %s\n%s\n%s",
			err, req.Method, target(req), statusText(resp.StatusCode), excerpt(body))
	}
}

// Check returns all differences between a response and the document.
func (d *Document) Check(req *http.Request, resp *http.Response, body []byte) error {
	path, ok := apiPath(target(req))
	if !ok {
		return fmt.Errorf("the target is not below %s", prefix)
	}
	method := cmp.Or(req.Method, http.MethodGet) // as net/http sends it
	a, err := d.find(method, path, resp.StatusCode)
	if err != nil {
		return err
	}
	faults := d.checkHeaders(a, resp.Header)
	if method == http.MethodHead {
		if len(body) > 0 {
			faults = append(faults, errors.New("a response to HEAD has a body"))
		}
	} else {
		if n := resp.Header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(body)) {
			faults = append(faults, fmt.Errorf("Content-Length is %s, the body has %d bytes", n, len(body)))
		}
		if err := d.checkBody(a.pointer, body); err != nil {
			faults = append(faults, err)
		} else {
			faults = append(faults, checkAgreement(resp, body)...)
			if err := checkPagination(body); err != nil {
				faults = append(faults, err)
			}
		}
	}
	if a.signed && resp.StatusCode == http.StatusOK {
		for _, name := range []string{"X-Public-Key", "X-Timestamp", "X-Signature"} {
			if n := len(req.Header.Values(name)); n != 1 {
				faults = append(faults, fmt.Errorf("a request with %d of the header %s was served", n, name))
			}
		}
	}
	return errors.Join(faults...)
}

// target returns the request target.
func target(req *http.Request) string {
	if req.RequestURI != "" {
		return req.RequestURI
	}
	return req.URL.RequestURI()
}

// apiPath returns the path below /api/v1, without the query. A gateway may be mounted below another path.
func apiPath(target string) (string, bool) {
	path, _, _ := strings.Cut(target, "?")
	for at := 0; ; {
		i := strings.Index(path[at:], prefix)
		if i < 0 {
			return "", false
		}
		at += i + len(prefix)
		if rest := path[at:]; rest == "" || rest[0] == '/' {
			return rest, true
		}
	}
}

// checkHeaders compares the headers with the document, except those that HTTP itself defines.
func (d *Document) checkHeaders(a described, got http.Header) []error {
	connection := []string{"Connection", "Content-Length", "Date", "Keep-Alive", "Alt-Svc"}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	known := map[string]bool{"Content-Type": true}
	if v := got.Values("Content-Type"); !slices.Equal(v, []string{"application/json"}) {
		fault("the header Content-Type is %q, not application/json", v)
	}
	for name, ref := range a.response.Headers {
		known[http.CanonicalHeaderKey(name)] = true
		values := got.Values(name)
		switch {
		case len(values) == 0 && ref.Value.Required:
			fault("the header %s is missing", name)
		case len(values) > 1:
			fault("the header %s occurs %d times", name, len(values))
		case len(values) == 1:
			if err := d.checkHeader(ref.Ref, values[0]); err != nil {
				fault("the header %s: %w", name, err)
			}
		}
	}
	for name := range got {
		if !known[name] && !slices.Contains(connection, name) {
			fault("the document does not define the header %s", name)
		}
	}
	return faults
}

// checkHeader validates a header's value, as an integer or a string, against the schema of the header at a pointer.
func (d *Document) checkHeader(pointer, value string) error {
	s, err := d.schema(pointer + "/schema")
	if err != nil {
		return err
	}
	var instance any = value
	if s.Types != nil && slices.Contains(s.Types.ToStrings(), "integer") {
		if n, err := strconv.Atoi(value); err != nil || strconv.Itoa(n) != value {
			return fmt.Errorf("%q is not an integer", value)
		}
		instance = json.Number(value)
	}
	return s.Validate(instance)
}

// checkBody validates a body against the schema of the response at a pointer.
func (d *Document) checkBody(pointer string, body []byte) error {
	s, err := d.schema(pointer + "/content/application~1json/schema")
	if err != nil {
		return err
	}
	if err := strictJSON(body); err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	if err := s.Validate(instance); err != nil {
		return fmt.Errorf("the body: %w", err)
	}
	return nil
}

// strictJSON rejects duplicate members, invalid UTF-8 and data after the value, which lenient readers accept.
func strictJSON(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	if _, err := dec.ReadValue(); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// checkPagination compares the page of a valid body with the bounds that the description of its members names.
func checkPagination(body []byte) error {
	var list struct {
		Pagination *struct {
			CurrentPage int `json:"current_page"`
			PerPage     int `json:"per_page"`
		} `json:"pagination"`
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Pagination == nil {
		return nil //nolint:nilerr // members of other types are not this check's
	}
	if p := list.Pagination; p.CurrentPage < 1 || p.PerPage < 1 || p.PerPage > 100 {
		return fmt.Errorf("current_page is %d, and per_page is %d, not 1 to 100", p.CurrentPage, p.PerPage)
	}
	return nil
}

// checkAgreement compares headers with the members of a valid body that have the same meaning.
func checkAgreement(resp *http.Response, body []byte) []error {
	var problem struct {
		Code       string `json:"code"`
		RequestID  string `json:"request_id"`
		RetryAfter *int   `json:"retry_after"`
	}
	if resp.StatusCode < 400 || json.Unmarshal(body, &problem) != nil {
		return nil
	}
	var faults []error
	if id := resp.Header.Get("X-Request-Id"); id != problem.RequestID {
		faults = append(faults, fmt.Errorf("X-Request-Id is %q, request_id is %q", id, problem.RequestID))
	}
	retry := ""
	if problem.RetryAfter != nil {
		retry = strconv.Itoa(*problem.RetryAfter)
	}
	if after := resp.Header.Get("Retry-After"); after != retry {
		faults = append(faults, fmt.Errorf("Retry-After is %q, retry_after is %q", after, retry))
	}
	// The document cannot require headers for only one of the codes of a status.
	if problem.Code == "INVALID_PARAMETER" && resp.Header.Get("Ratelimit") == "" {
		faults = append(faults, errors.New("the header RateLimit is missing"))
	}
	return faults
}

// excerpt returns the beginning of a body, for messages.
func excerpt(body []byte) string {
	const most = 2000
	if len(body) > most {
		return string(body[:most]) + " …"
	}
	return string(body)
}
