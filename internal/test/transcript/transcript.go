// Package transcript replays HTTP/1.1 exchanges from txtar files:
//
//	A client reads the metadata.
//
//	-- request: metadata --
//	GET /.well-known/oauth-authorization-server HTTP/1.1
//	Host: api.example.com
//
//	-- response --
//	HTTP/1.1 200 OK
//	Content-Type: application/json
//	WWW-Authenticate:
//
//	{"issuer": "https://api.example.com", "token_endpoint": "${token_endpoint}", "...": ""}
//
// A request is sent as written, with CRLF line ends and, if it has a body and names no framing, with a
// Content-Length. Each request has a connection of its own. A request that ends with several responses is followed by as
// many response sections. If the last one closes the connection, nothing may follow it.
//
// A response must have the status, each header with the value that is written (a header without a value must be absent),
// and, if there is an empty line after the headers, the body. Without that line the body is not compared. JSON, also after
// "data: " in an event stream, is compared as a value; a member "..." allows others beside those that are written.
//
// A Prepare function may change each request before it is sent, to sign it, for instance.
//
// In an event stream, a line "..." stands for any number of lines.
//
// ${name} is replaced by a variable's value. If a response names a variable that has no value yet, it matches any text, or a
// JSON number, and becomes the value. ${*} matches any text, and as a member any JSON value.
package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// timeout is how long a connection may take. Only a server that does not respond reaches it.
const timeout = time.Minute

// Prepare returns the request to send for one of the file. Lines end with LF.
type Prepare func(request string) string

// RunAll replays each file that matches the pattern against the server at addr (host:port), as a subtest with the file's name.
// Each begins with the same variables.
func RunAll(t *testing.T, pattern, addr string, variables map[string]string, prepare ...Prepare) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			Run(t, file, addr, variables, prepare...)
		})
	}
}

// Run replays one file against the server at addr (host:port). Each request is a subtest; those after a failed one do not run.
func Run(t *testing.T, file, addr string, variables map[string]string, prepare ...Prepare) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	exchanges, err := parse(raw)
	require.NoError(t, err, file)
	v := maps.Clone(variables)
	if v == nil {
		v = map[string]string{}
	}
	for _, e := range exchanges {
		if !t.Run(e.name, func(t *testing.T) {
			require.NoError(t, e.replay(addr, v, prepare...))
		}) {
			return
		}
	}
}

// exchange is a request and the responses that it must get.
type exchange struct {
	name      string
	request   string
	responses []string
}

func parse(raw []byte) ([]exchange, error) {
	var all []exchange
	for _, f := range txtar.Parse(raw).Files {
		kind, name, _ := strings.Cut(f.Name, ": ")
		switch {
		case kind == "request":
			if name == "" {
				name = fmt.Sprintf("request %d", len(all)+1)
			}
			all = append(all, exchange{name: name, request: string(f.Data)})
		case kind == "response" && len(all) > 0:
			all[len(all)-1].responses = append(all[len(all)-1].responses, string(f.Data))
		default:
			return nil, fmt.Errorf("invalid section %q: must be a request, or a response after one", f.Name)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no request")
	}
	for _, e := range all {
		if len(e.responses) == 0 {
			return nil, fmt.Errorf("no response to %q", e.name)
		}
	}
	return all, nil
}

// replay sends the request and compares the responses. If the last one closes the connection, nothing may follow it.
func (e exchange) replay(addr string, v map[string]string, prepare ...Prepare) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	request, err := expand(e.request, v)
	if err != nil {
		return err
	}
	for _, p := range prepare {
		request = p(request)
	}
	// A server that responds early may not read the rest.
	go func() { _, _ = io.WriteString(conn, wire(request)) }()
	r := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	closed := false
	for i, want := range e.responses {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return fmt.Errorf("reading response %d: %w", i+1, err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return fmt.Errorf("reading the body of response %d: %w", i+1, err)
		}
		closed = res.Close
		if closed {
			res.Header.Set("Connection", "close") // ReadResponse removes it
		}
		if err := compare(want, res, string(body), v); err != nil {
			return fmt.Errorf("response %d: %w\ngot: %s %v\n%s", i+1, err, res.Status, res.Header, body)
		}
	}
	if closed {
		// A server that has not read the whole request resets the connection.
		if more, err := io.ReadAll(r); len(more) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("after the last response: got %q, want the end of the connection", more)
		}
	}
	return nil
}

// wire returns the request as it is sent.
func wire(request string) string {
	head, body, _ := strings.Cut(request, "\n\n")
	head, body = strings.TrimSuffix(head, "\n"), strings.TrimSuffix(body, "\n")
	lower := strings.ToLower(head)
	if body != "" && !strings.Contains(lower, "\ncontent-length") && !strings.Contains(lower, "\ntransfer-encoding") {
		head += fmt.Sprintf("\nContent-Length: %d", len(body))
	}
	return strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
}

var variable = regexp.MustCompile(`\$\{([a-z0-9_]+|\*)\}`)

// expand replaces the variables of a request.
func expand(s string, v map[string]string) (string, error) {
	var missing error
	s = variable.ReplaceAllStringFunc(s, func(m string) string {
		value, ok := v[m[2:len(m)-1]]
		if !ok {
			missing = fmt.Errorf("%s has no value", m)
		}
		return value
	})
	return s, missing
}

func compare(want string, res *http.Response, body string, v map[string]string) error {
	head, wantBody, compareBody := strings.Cut(want, "\n\n")
	lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	if err := match(lines[0], res.Proto+" "+res.Status, v); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		got := strings.Join(res.Header.Values(name), ", ")
		if err := match(value, got, v); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	if !compareBody {
		return nil
	}
	return compareText(strings.TrimSuffix(wantBody, "\n"), strings.TrimSuffix(body, "\n"), v)
}

// compareText compares bodies: JSON as a value, event streams line by line, anything else as text.
func compareText(want, got string, v map[string]string) error {
	if wantValue, ok := decode(want); ok {
		gotValue, ok := decode(got)
		if !ok {
			return fmt.Errorf("the body is not JSON")
		}
		return compareValue("body", wantValue, gotValue, v)
	}
	if !strings.Contains(want, "data: ") {
		return match(want, got, v)
	}
	return compareLines(strings.Split(want, "\n"), strings.Split(strings.ReplaceAll(got, "\r\n", "\n"), "\n"), v)
}

func compareLines(want, got []string, v map[string]string) error {
	for i, line := range want {
		if line == "..." {
			for skipped := range len(got) - i + 1 {
				if found := maps.Clone(v); compareLines(want[i+1:], got[i+skipped:], found) == nil {
					maps.Copy(v, found)
					return nil
				}
			}
			return fmt.Errorf("line %d: nothing matches what follows", i+1)
		}
		if i >= len(got) {
			return fmt.Errorf("%d lines, want %d", len(got), len(want))
		}
		wantData, isData := strings.CutPrefix(line, "data: ")
		gotData, hasData := strings.CutPrefix(got[i], "data: ")
		err := match(line, got[i], v)
		if isData && hasData {
			err = compareText(wantData, gotData, v)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if len(got) > len(want) {
		return fmt.Errorf("%d lines, want %d", len(got), len(want))
	}
	return nil
}

func decode(s string) (any, bool) {
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil || d.More() {
		return nil, false
	}
	switch value.(type) {
	case map[string]any, []any:
		return value, true
	}
	return nil, false
}

func compareValue(path string, want, got any, v map[string]string) error {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: got %v, want an object", path, got)
		}
		_, more := want["..."]
		for name, value := range want {
			if name == "..." {
				continue
			}
			member, ok := object[name]
			if !ok {
				return fmt.Errorf("%s.%s is missing", path, name)
			}
			if err := compareValue(path+"."+name, value, member, v); err != nil {
				return err
			}
		}
		for name := range object {
			if _, ok := want[name]; !ok && !more {
				return fmt.Errorf("%s.%s is not expected", path, name)
			}
		}
		return nil
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Errorf("%s: got %v, want %d elements", path, got, len(want))
		}
		for i := range want {
			if err := compareValue(fmt.Sprintf("%s[%d]", path, i), want[i], list[i], v); err != nil {
				return err
			}
		}
		return nil
	case string:
		if want == "${*}" {
			return nil
		}
		text, ok := got.(string)
		if number, isNumber := got.(json.Number); isNumber && variable.FindString(want) == want {
			text, ok = number.String(), true
		}
		if !ok {
			return fmt.Errorf("%s: got %v, want the string %q", path, got, want)
		}
		if err := match(want, text, v); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	if want != got {
		return fmt.Errorf("%s: got %v, want %v", path, got, want)
	}
	return nil
}

// match compares text that may contain variables, and sets those without a value.
func match(want, got string, v map[string]string) error {
	var names []string
	var pattern strings.Builder
	pattern.WriteString("(?s)^")
	last := 0
	for _, m := range variable.FindAllStringSubmatchIndex(want, -1) {
		pattern.WriteString(regexp.QuoteMeta(want[last:m[0]]))
		last = m[1]
		name := want[m[2]:m[3]]
		switch value, ok := v[name]; {
		case name == "*":
			pattern.WriteString(".*?")
		case ok:
			pattern.WriteString(regexp.QuoteMeta(value))
		default:
			names = append(names, name)
			pattern.WriteString("(.+?)")
		}
	}
	pattern.WriteString(regexp.QuoteMeta(want[last:]) + "$")
	found := regexp.MustCompile(pattern.String()).FindStringSubmatch(got)
	if found == nil {
		return fmt.Errorf("got %q, want %q", got, want)
	}
	for i, name := range names {
		v[name] = found[i+1]
	}
	return nil
}
