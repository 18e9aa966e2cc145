package explain

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// ErrCapture means that a capture is not a request in a known format.
var ErrCapture = errors.New("not a captured request")

// The beginnings of captures.
var (
	verboseStart = regexp.MustCompile(`(?m)^> [A-Z]+ \S+ HTTP/`)              // what curl -v prints
	curlStart    = regexp.MustCompile(`^(?:[^\n]*?[\s/\\])?curl(?:\.exe)?\s`) // possibly after a path, variables and other commands
	curlName     = regexp.MustCompile(`(?:^|[/\\])curl(?:\.exe)?$`)
	prompt       = regexp.MustCompile(`^[^\s"']*[$#%>+] `)
	wrapped      = regexp.MustCompile(`(?mi)^(X-Signature: *[\w+/]{60,76})\n([\w+/=]+)$`) // xxd and base64 wrap lines
	comments     = regexp.MustCompile("^(?:\\s*(?:#[^\n]*|```\\w*\\s*)\n)+")
)

// Parse reads a captured request: raw HTTP/1.1, also as curl -v prints it, a curl command line, or an entry of a HAR file. Of a whole
// HAR file, it takes the last signed request. The error wraps ErrCapture. env returns the variables of a command line.
func Parse(capture []byte, env func(name string) string) (Request, error) {
	decoded, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), capture) // PowerShell writes UTF-16
	if err != nil {
		return Request{}, fmt.Errorf("%w: decoding UTF-16: %w", ErrCapture, err)
	}
	text := strings.TrimLeft(string(decoded), " \t\r\n")
	if !strings.HasPrefix(text, "# curl ") { // root's prompt
		text = strings.TrimLeft(comments.ReplaceAllString(text, ""), " \t\r\n")
	}
	var r Request
	switch {
	case text == "":
		err = errors.New("it is empty")
	case verboseStart.MatchString(text):
		r, err = parseVerbose(text)
	case text[0] == '{':
		r, err = parseHAR([]byte(text))
	case curlStart.MatchString(text):
		r, err = parseCurl(prompt.ReplaceAllString(text, ""), env)
	default:
		r, err = parseHTTP(text)
	}
	if err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrCapture, err)
	}
	return r, nil
}

// errHTTP does not quote the text, which may have a signature in it, or more.
var errHTTP = errors.New("must begin with a request line such as GET /api/v1/me HTTP/1.1, followed by headers such as Host: example.com; " +
	"or it must be a curl command, or a HAR file (remove everything before and after it)")

// parseHTTP reads a request as it is on the wire. LF may end lines instead of CR LF. What follows the request, such as its response,
// is ignored.
func parseHTTP(text string) (Request, error) {
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	if before, after, ok := strings.Cut(text, "\n\n"); ok && len(before) < len(head) {
		head, body = before, after
	}
	// The body is cut off, because http.ReadRequest would wait for one as long as Content-Length.
	raw := strings.ReplaceAll(head, "\r\n", "\n")
	line, _, _ := strings.Cut(raw, "\n")
	fields := strings.Fields(line)
	if len(fields) == 2 {
		raw = strings.Replace(raw, line, line+" HTTP/1.1", 1)
	}
	if len(fields) == 3 && strings.HasPrefix(fields[2], "HTTP/") { // HTTP/2 and 3 as tools print them
		raw = strings.Replace(raw, line, fields[0]+" "+fields[1]+" HTTP/1.1", 1)
	}
	raw = wrapped.ReplaceAllString(raw, "$1 $2")
	raw = strings.ReplaceAll(raw, "\n", "\r\n") + "\r\n\r\n"
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return Request{}, errHTTP
	}
	r := Request{Method: req.Method, Target: req.RequestURI, Host: req.Host, Header: req.Header, Body: []byte(body)}
	switch hasLength := req.Header.Get("Content-Length") != ""; {
	case len(req.TransferEncoding) > 0:
		if r.Body, err = dechunk(raw + body); err != nil {
			return Request{}, fmt.Errorf("reading the chunked body: %w", err)
		}
	case hasLength && int64(len(body)) > req.ContentLength:
		r.Body = r.Body[:req.ContentLength]
	case !hasLength && (req.Method == http.MethodGet || req.Method == http.MethodHead):
		r.Body = nil
	}
	if req.URL.IsAbs() {
		r.Scheme, r.Target = req.URL.Scheme, strings.TrimPrefix(r.Target, req.URL.Scheme+"://"+req.URL.Host)
	}
	if date, err := http.ParseTime(req.Header.Get("Date")); err == nil {
		r.At = date
	}
	return r, nil
}

func dechunk(text string) ([]byte, error) {
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(req.Body)
}

// parseVerbose reads the first request in the output of curl -v.
func parseVerbose(output string) (Request, error) {
	var head []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if sent, ok := strings.CutPrefix(line, ">"); ok && strings.TrimSpace(sent) != "" {
			head = append(head, strings.TrimPrefix(sent, " "))
		} else if ok && len(head) > 0 {
			break
		}
	}
	r, err := parseHTTP(strings.Join(head, "\n"))
	if length := r.Header.Get("Content-Length"); err == nil && length != "" && length != "0" {
		return Request{}, errors.New("curl -v does not print the request body: pass the curl command instead")
	}
	return r, err
}

// unwrapped returns a command line without what other shells, and the programs that it was copied through, put between its words.
func unwrapped(text string) string {
	if strings.Contains(text, `^"`) || regexp.MustCompile(`\^\r?\n`).MatchString(text) { // cmd.exe
		text = regexp.MustCompile(`\^\r?\n`).ReplaceAllString(text, " ")
		text = regexp.MustCompile(`\^(.)`).ReplaceAllString(text, "$1")
	}
	text = regexp.MustCompile("[\\\\`][ \t]*\r?\n(?:> )?").ReplaceAllString(text, " ") // PowerShell's backtick, and the shell's second prompt
	return strings.NewReplacer("\n```", "\n", "\u201c", `"`, "\u201d", `"`, "\u2018", "'", "\u2019", "'").Replace(text)
}

// curlWords returns the words of the first curl command in text, as a shell does, without running commands in it. What follows the
// command is not read.
func curlWords(text string, env func(string) string) (words []string, err error) {
	var args []*syntax.Word
	for stmt, err := range syntax.NewParser().StmtsSeq(strings.NewReader(unwrapped(text))) {
		if err != nil || args != nil {
			continue // to the end, because StmtsSeq panics if an error follows the last statement that is read
		}
		syntax.Walk(stmt, func(node syntax.Node) bool {
			if call, ok := node.(*syntax.CallExpr); ok && args == nil {
				if i := slices.IndexFunc(call.Args, func(w *syntax.Word) bool { return curlName.MatchString(w.Lit()) }); i >= 0 {
					args = call.Args[i:]
				}
			}
			return args == nil
		})
	}
	if args == nil {
		return nil, errors.New("the curl command is not complete: check its quotation marks, and remove everything before and after it")
	}
	words, err = expand.Fields(&expand.Config{Env: expand.FuncEnviron(env)}, args...)
	if err != nil {
		return nil, errors.New("the curl command contains another command: replace it by its output")
	}
	return words, nil
}

// parseCurl reads a curl command line.
func parseCurl(text string, env func(string) string) (Request, error) {
	words, err := curlWords(text, env)
	if err != nil {
		return Request{}, err
	}
	r := Request{Header: http.Header{}}
	var (
		address, agent, ignored string
		head, get, asJSON, flag bool
		data, query             []string
	)
	f := pflag.NewFlagSet("curl", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.StringVarP(&r.Method, "request", "X", "", "")
	f.StringVar(&address, "url", "", "")
	f.StringVarP(&agent, "user-agent", "A", "", "")
	f.BoolVarP(&head, "head", "I", false, "")
	f.BoolVarP(&get, "get", "G", false, "")
	f.FuncP("header", "H", "", func(line string) error {
		name, value, _ := strings.Cut(line, ":")
		r.Header.Add(name, strings.Trim(value, " \t"))
		return nil
	})
	for name, short := range map[string]string{
		"data": "d", "data-ascii": "", "data-binary": "", "data-raw": "", "data-urlencode": "", "json": "",
	} {
		f.FuncP(name, short, "", func(value string) error {
			asJSON = asJSON || name == "json"
			value, err := curlData(name, value)
			data = append(data, value)
			return err
		})
	}
	f.FuncP("url-query", "", "", func(value string) error {
		value, err := curlData("data-urlencode", value)
		query = append(query, value)
		return err
	})
	// pflag must know which options have no value.
	for name, short := range map[string]string{
		"silent": "s", "show-error": "S", "insecure": "k", "location": "L", "include": "i", "verbose": "v", "fail": "f", "globoff": "g",
		"no-buffer": "N", "ipv4": "4", "ipv6": "6", "http1.0": "0", "remote-name": "O", "fail-with-body": "", "compressed": "", "http1.1": "",
		"http2": "", "http3": "", "path-as-is": "", "no-progress-meter": "", "no-keepalive": "", "tlsv1.2": "1", "tr-encoding": "",
	} {
		f.BoolVarP(&flag, name, short, false, "")
	}
	for name, short := range map[string]string{
		"output": "o", "max-time": "m", "write-out": "w", "dump-header": "D", "proxy": "x", "user": "u", "cookie": "b", "cookie-jar": "c",
		"referer": "e", "cert": "E", "form": "F", "connect-timeout": "", "resolve": "", "cacert": "", "retry": "", "key": "",
	} {
		f.StringVarP(&ignored, name, short, "", "")
	}
	if err := f.Parse(words[1:]); err != nil {
		return Request{}, fmt.Errorf("reading the options of curl: %w", err)
	}
	if f.NArg() > 0 {
		address = f.Arg(0)
	}
	separator := "&"
	if asJSON {
		separator = ""
	}
	body := strings.Join(data, separator)
	if get && body != "" {
		query, body = append(query, body), ""
	}
	if len(query) > 0 {
		mark := "?"
		if strings.Contains(address, "?") {
			mark = "&"
		}
		address += mark + strings.Join(query, "&")
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	r.Host = r.Header.Get("Host")
	r.Body = []byte(body)
	switch {
	case r.Method != "":
	case head:
		r.Method = http.MethodHead
	case body != "":
		r.Method = http.MethodPost
	default:
		r.Method = http.MethodGet
	}
	return r, r.setURL(address)
}

// curlData returns the data of an option of curl.
func curlData(option, value string) (string, error) {
	if option == "data-raw" || !strings.HasPrefix(value, "@") {
		if option == "data-urlencode" {
			name, v, ok := strings.Cut(value, "=")
			if !ok {
				return url.QueryEscape(value), nil
			}
			return strings.TrimPrefix(name+"=", "=") + strings.ReplaceAll(url.QueryEscape(v), "+", "%20"), nil
		}
		return value, nil
	}
	b, err := os.ReadFile(value[1:])
	if err != nil {
		return "", fmt.Errorf("reading the request body: %w", err)
	}
	if option == "data-binary" || option == "json" {
		return string(b), nil
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(string(b)), nil
}

// setURL sets what the URL of a request says, with the target as it is written.
func (r *Request) setURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return errors.New("the URL is invalid: must be of the form https://host/path")
	}
	_, rest, _ := strings.Cut(address, "://")
	rest, _, _ = strings.Cut(rest, "#")
	r.Scheme, r.Target = u.Scheme, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		if r.Target = rest[i:]; r.Target[0] == '?' {
			r.Target = "/" + r.Target
		}
	}
	if r.Host == "" {
		r.Host = u.Host
	}
	return nil
}

type harEntry struct {
	StartedDateTime time.Time `json:"startedDateTime"`
	Request         struct {
		Method  string `json:"method"`
		URL     string `json:"url"`
		Headers []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"headers"`
		PostData struct {
			Text     string `json:"text"`
			Encoding string `json:"encoding"`
		} `json:"postData"`
	} `json:"request"`
}

// parseHAR reads an entry of an HTTP Archive, or the last signed one of a whole archive.
func parseHAR(capture []byte) (Request, error) {
	var file struct {
		harEntry
		Log struct {
			Entries []harEntry `json:"entries"`
		} `json:"log"`
	}
	if err := json.Unmarshal(capture, &file); err != nil {
		return Request{}, fmt.Errorf("reading HAR: %w", err)
	}
	entries := file.Log.Entries
	if file.Request.URL != "" {
		entries = []harEntry{file.harEntry}
	}
	var found []Request
	for _, e := range entries {
		r := Request{Method: e.Request.Method, Header: http.Header{}, Body: []byte(e.Request.PostData.Text), At: e.StartedDateTime}
		for _, h := range e.Request.Headers {
			r.Header.Add(h.Name, h.Value)
		}
		r.Host = r.Header.Get("Host")
		if len(entries) > 1 && len(r.Header[authsigner.HeaderSignature]) == 0 {
			continue
		}
		if e.Request.PostData.Encoding == "base64" {
			body, err := base64.StdEncoding.DecodeString(e.Request.PostData.Text)
			if err != nil {
				return Request{}, fmt.Errorf("reading the request body of the HAR: %w", err)
			}
			r.Body = body
		}
		if err := r.setURL(e.Request.URL); err != nil {
			return Request{}, err
		}
		found = append(found, r)
	}
	if len(found) == 0 {
		return Request{}, fmt.Errorf("the HAR has %d requests, none of them with the header %s: must have a signed one, exported with its headers",
			len(entries), authsigner.HeaderSignature)
	}
	last := found[len(found)-1]
	last.Skipped = len(found) - 1
	return last, nil
}
