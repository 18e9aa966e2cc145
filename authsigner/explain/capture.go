package explain

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// ErrCapture means that a capture is not a request in a known format.
var ErrCapture = errors.New("not a captured request")

// MaxCapture is the maximum size of a capture in bytes, and maxHead that of its request line and headers.
const (
	MaxCapture = 4 << 20
	maxHead    = 64 << 10
)

// The beginnings of captures.
var (
	requestLine = regexp.MustCompile(`^[A-Z]+ \S+(?: HTTP/[0-9.]+)?\r?(?:\n|$)`)
	verbose     = regexp.MustCompile(`(?m)^> [A-Z]+ \S+ HTTP/`) // of curl -v
	notSent     = regexp.MustCompile(`(?m)^> ?|^[^>\n].*\n?|^\n`)
	curlStart   = regexp.MustCompile(`^(?:[^\n'"<]*[\s/\\])?curl(?:\.exe)?(?:\s|$)`) // possibly after a prompt, path and variables
	comments    = regexp.MustCompile("^(?:\\s*(?:#[^\n]*|```\\w*\\s*)\n)+")
	wrapped     = regexp.MustCompile(`(?mi)^(X-Signature: *[\w+/]{60,76})\n([\w+/=]+)$`) // xxd and base64 wrap lines
)

// Parse reads a captured request: raw HTTP/1.1, also as curl -v prints it, or a curl command line. A capture is data: variables and
// commands in it are not expanded, and files that it names are not read. The error wraps ErrCapture and does not quote the capture.
func Parse(capture []byte) (r Request, err error) {
	if len(capture) > MaxCapture {
		return Request{}, fmt.Errorf("%w: it is larger than %d bytes", ErrCapture, MaxCapture)
	}
	decoded, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), capture) // PowerShell writes UTF-16
	text := strings.TrimLeft(comments.ReplaceAllString(string(decoded), ""), " \t\r\n")
	switch {
	case err != nil:
		err = errors.New("invalid UTF-16")
	case text == "":
		err = errors.New("it is empty")
	case requestLine.MatchString(text):
		r, err = parseHTTP(text)
	case verbose.MatchString(text):
		r, err = parseHTTP(notSent.ReplaceAllString(text, ""))
	case curlStart.MatchString(text):
		r, err = parseCurl(text[len(curlStart.FindString(text)):])
	default:
		r, err = parseHTTP(text)
	}
	if err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrCapture, err)
	}
	return r, nil
}

// parseHTTP reads a request as it is on the wire. LF may end lines instead of CR LF. What follows the request, such as its response,
// is ignored.
func parseHTTP(text string) (Request, error) {
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	if before, after, ok := strings.Cut(text, "\n\n"); ok && len(before) < len(head) {
		head, body = before, after
	}
	if len(head) > maxHead {
		return Request{}, fmt.Errorf("the headers are larger than %d bytes", maxHead)
	}
	// The body is cut off, because http.ReadRequest would wait for one as long as Content-Length.
	raw := strings.ReplaceAll(head, "\r\n", "\n")
	line, _, _ := strings.Cut(raw, "\n")
	if fields := strings.Fields(line); len(fields) == 2 || len(fields) == 3 && strings.HasPrefix(fields[2], "HTTP/") {
		raw = fields[0] + " " + fields[1] + " HTTP/1.1" + raw[len(line):] // HTTP/2 and 3 as tools print them
	}
	raw = strings.ReplaceAll(wrapped.ReplaceAllString(raw, "$1 $2"), "\n", "\r\n") + "\r\n\r\n"
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		return Request{}, errors.New("must begin with a request line such as GET /path HTTP/1.1, followed by headers such as " +
			"Host: example.com; or it must be a curl command (remove everything before and after it)")
	}
	r := Request{Method: req.Method, Target: req.RequestURI, Host: req.Host, Header: req.Header, Body: []byte(body)}
	switch hasLength := req.Header.Get("Content-Length") != ""; {
	case len(req.TransferEncoding) > 0:
		if req, err = http.ReadRequest(bufio.NewReader(strings.NewReader(raw + body))); err == nil {
			r.Body, err = io.ReadAll(req.Body)
		}
		if err != nil {
			return Request{}, errors.New("the chunked body is invalid or not complete")
		}
	case hasLength && int64(len(body)) < req.ContentLength:
		return Request{}, errors.New("the body is shorter than Content-Length says: curl -v and some proxies do not print it")
	case hasLength:
		r.Body = r.Body[:req.ContentLength]
	case !hasLength && (req.Method == http.MethodGet || req.Method == http.MethodHead):
		r.Body = nil
	}
	if req.URL.IsAbs() {
		r.Scheme, r.Target = req.URL.Scheme, strings.TrimPrefix(r.Target, req.URL.Scheme+"://"+req.URL.Host)
	}
	return r, nil
}

// curlWords splits the arguments of a curl command into words: by quotation marks and backslashes as a POSIX shell does, without
// expanding anything. What follows the command is not read.
func curlWords(text string) (words []string, err error) {
	const expanded = "{('_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" // by a shell, after a dollar sign
	var word []byte
	inWord, quote := false, byte(0)
	text += "\n" // ends the command, unless it is in quotation marks
	for i := 0; i < len(text); i++ {
		c, next := text[i], text[min(i+1, len(text)-1)]
		switch {
		case quote != '\'' && (c == '`' || c == '$' && strings.IndexByte(expanded, next) >= 0):
			return nil, errors.New("the curl command contains a variable or another command ($ or `), which is not expanded: replace it by its value")
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			inWord, quote = true, c
		case c == '\\' && (quote == 0 || quote == '"' && strings.IndexByte("\"\\$`", next) >= 0):
			word, inWord = append(word, next), true
			i++
		case quote == 0 && strings.IndexByte(" \t\n|&;<>()", c) >= 0:
			if inWord {
				words, word, inWord = append(words, string(word)), word[:0], false
			}
			if c != ' ' && c != '\t' {
				return words, nil
			}
		default:
			word, inWord = append(word, c), true
		}
	}
	return nil, errors.New("the curl command is not complete: check its quotation marks")
}

// parseCurl reads the arguments of curl.
func parseCurl(text string) (Request, error) {
	text = strings.NewReplacer("\r\n", "\n", "\u201c", `"`, "\u201d", `"`, "\u2018", "'", "\u2019", "'").Replace(text)
	words, err := curlWords(strings.NewReplacer("\\\n> ", "", "\\\n", "").Replace(text)) // with the shell's second prompt
	if err != nil {
		return Request{}, err
	}
	f := pflag.NewFlagSet("curl", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	method, address := f.StringP("request", "X", "", ""), f.String("url", "", "")
	head, get := f.BoolP("head", "I", false, ""), f.BoolP("get", "G", false, "")
	headers := f.StringArrayP("header", "H", nil, "")
	var data []string
	file := false
	for field := range strings.FieldsSeq("d:data :data-ascii :data-binary :json :data-raw") {
		short, name, _ := strings.Cut(field, ":")
		f.FuncP(name, short, "", func(value string) error {
			data, file = append(data, value), file || name != "data-raw" && strings.HasPrefix(value, "@")
			return nil
		})
	}
	for field := range strings.FieldsSeq("A:user-agent o:output m:max-time w:write-out D:dump-header x:proxy u:user b:cookie c:cookie-jar :cacert") {
		short, name, _ := strings.Cut(field, ":")
		f.StringP(name, short, "", "")
	}
	for field := range strings.FieldsSeq("s:silent S:show-error k:insecure L:location i:include v:verbose f:fail g:globoff :compressed :path-as-is") {
		short, name, _ := strings.Cut(field, ":")
		f.BoolP(name, short, false, "")
	}
	if f.Parse(words) != nil {
		return Request{}, errors.New("the curl command has an option that is not read, or lacks a value: pass the request as raw HTTP instead")
	}
	r := Request{Header: http.Header{}, Body: []byte(strings.Join(data, "&"))}
	if file || slices.ContainsFunc(*headers, func(line string) bool { return strings.HasPrefix(line, "@") }) {
		return Request{}, errors.New("the curl command names a file with @, which is not read: replace it by the file's content")
	}
	for _, line := range *headers {
		name, value, _ := strings.Cut(line, ":")
		r.Header.Add(name, strings.Trim(value, " \t"))
	}
	target := cmp.Or(*address, f.Arg(0))
	r.Method = http.MethodGet
	switch {
	case *head:
		r.Method = http.MethodHead
	case *get && len(r.Body) > 0:
		mark := map[bool]string{false: "?", true: "&"}[strings.Contains(target, "?")]
		target, r.Body = target+mark+string(r.Body), nil
	case len(r.Body) > 0:
		r.Method = http.MethodPost
	}
	r.Method = cmp.Or(*method, r.Method)
	return r, r.setURL(target)
}

// setURL sets what the URL of a request says, with the target as it is written.
func (r *Request) setURL(address string) error {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	scheme, rest, _ := strings.Cut(address, "://")
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest+"/", "/?")
	u, err := url.Parse(scheme + "://" + rest[:end])
	if err != nil || u.Host == "" || len(rest) > maxHead {
		return errors.New("the URL is invalid: must be of the form https://host/path")
	}
	r.Scheme, r.Host, r.Target = u.Scheme, cmp.Or(r.Header.Get("Host"), u.Host), "/"+strings.TrimPrefix(rest[end:], "/")
	return nil
}
