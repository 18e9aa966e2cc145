package explain_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

// The signatures of the same GET, and of the same POST of {"a":1}, with the key pair of the other tests.
func signatures() (get, post string) {
	get = authsigner.Sign(privateKey, sentAt.Unix(), "GET", target, nil)
	post = authsigner.Sign(privateKey, sentAt.Unix(), "POST", "/api/v1/jobs", []byte(`{"a":1}`))
	return get, post
}

func TestCapturesAreRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "body")
	require.NoError(t, os.WriteFile(file, []byte(`{"a":1}`), 0o600))
	get, post := signatures()
	headers := "X-Public-Key: " + publicKey + "\nX-Timestamp: 1760000000\nX-Signature: "
	curl := "-H 'X-Public-Key: " + publicKey + "' -H 'X-Timestamp: 1760000000' -H \"X-Signature: $SIGNATURE\" "
	raw := "GET " + target + " HTTP/1.1\nHost: api.example.com\n" + headers + get
	for name, c := range map[string]struct{ capture, signature, host string }{
		"HTTP/1.1": {
			"GET " + target + " HTTP/1.1\r\nHost: api.example.com\r\n" + strings.ReplaceAll(headers, "\n", "\r\n") + get + "\r\n\r\n", get, "api.example.com",
		},
		"HTTP with LF":                     {"GET " + target + " HTTP/1.1\nHost: api.example.com\n" + headers + get + "\n\n", get, "api.example.com"},
		"HTTP without an empty line":       {"GET " + target + " HTTP/1.1\nHost: api.example.com\n" + headers + get, get, "api.example.com"},
		"HTTP/2 as tools print it":         {"GET " + target + " HTTP/2\nHost: api.example.com\n" + headers + get + "\n\n", get, "api.example.com"},
		"absolute form":                    {"GET http://api.example.com" + target + " HTTP/1.1\nHost: api.example.com\n" + headers + get + "\n\n", get, "api.example.com"},
		"body":                             {"POST /api/v1/jobs HTTP/1.1\nHost: a\n" + headers + post + "\n\n" + `{"a":1}`, post, "a"},
		"body, with the file's line feed":  {"POST /api/v1/jobs HTTP/1.1\nHost: a\nContent-Length: 7\n" + headers + post + "\n\n" + `{"a":1}` + "\n", post, "a"},
		"chunked body":                     {"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + strings.ReplaceAll(headers, "\n", "\r\n") + post + "\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n", post, "a"},
		"curl":                             {"curl -sS " + curl + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl, prompt and continued lines": {"$ curl --silent \\\n  " + curl + "\\\n  --path-as-is --globoff -o /dev/null -w '%{http_code}' \"$URL" + target + "\"\n", get, "api.example.com"},
		"curl --get":                       {"curl -G " + curl + "-d category=Power%20tools -d page=2 https://api.example.com/api/v1/equipment", get, "api.example.com"},
		"curl --data-urlencode":            {"curl -G " + curl + "--data-urlencode 'category=Power tools' -d page=2 https://api.example.com/api/v1/equipment", get, "api.example.com"},
		"curl --data":                      {"curl " + curl + `-d '{"a":1}' https://api.example.com/api/v1/jobs`, post, "api.example.com"},
		"curl --json":                      {"curl " + curl + `--json '{"a":1}' --url https://api.example.com/api/v1/jobs`, post, "api.example.com"},
		"curl with a file":                 {"curl " + curl + "-XPOST --data-binary @" + file + " https://api.example.com/api/v1/jobs", post, "api.example.com"},
		"curl from a browser":              {"curl 'https://api.example.com/api/v1/jobs' " + curl + `--data-raw $'{"a":1}' --compressed --insecure`, post, "api.example.com"},
		"body, with the response":          {"POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n" + strings.ReplaceAll(headers, "\n", "\r\n") + post + "\r\n\r\n" + `{"a":1}HTTP/1.1 401 Unauthorized` + "\r\n\r\n{}", post, "a"},
		"GET with the response":            {raw + "\n\nHTTP/1.1 401 Unauthorized\nContent-Length: 2\n\n{}", get, "api.example.com"},
		"two requests":                     {raw + "\n\n" + raw + "\n\n", get, "api.example.com"},
		"HTTP file":                        {"### Equipment\n# of one category\n" + raw + "\n", get, "api.example.com"},
		"UTF-16":                           {wide("\ufeff" + raw + "\n\n"), get, "api.example.com"},
		"curl -v":                          {"* Connected to api.example.com\n> " + strings.ReplaceAll(raw, "\n", "\n> ") + "\n> \n< HTTP/1.1 401 Unauthorized\n< \n{}\n", get, "api.example.com"},
		"curl -v with its command":         {"$ curl -v https://api.example.com/\n> " + strings.ReplaceAll(raw, "\n", "\r\n> ") + "\r\n> \r\n", get, "api.example.com"},
		"curl for cmd.exe":                 {"curl ^\"https://api.example.com" + strings.ReplaceAll(target, "&", "^&") + "^\" ^\r\n  -H ^\"X-Public-Key: " + publicKey + "^\" ^\r\n -H ^\"X-Timestamp: 1760000000^\" -H ^\"X-Signature: " + get + "^\"\r\n", get, "api.example.com"},
		"curl for PowerShell":              {"curl.exe " + strings.ReplaceAll(curl, " -H", " `\r\n  -H") + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl in UTF-16":                   {wide("\ufeffcurl " + curl + "'https://api.example.com" + target + "'\r\n"), get, "api.example.com"},
		"curl with its path":               {"/usr/bin/curl " + curl + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl after other words":           {"TZ=UTC time curl " + curl + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl with a pipe":                 {"curl -s " + curl + "'https://api.example.com" + target + "' 2>&1 | jq .", get, "api.example.com"},
		"curl and another command":         {"curl -s " + curl + "'https://api.example.com" + target + "' && echo; echo 'done", get, "api.example.com"},
		"curl in a script":                 {"#!/bin/sh\n# Equipment of one category\n\ncurl -s " + curl + "'https://api.example.com" + target + "'\n", get, "api.example.com"},
		"curl of set -x":                   {"+ curl -s " + curl + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl of root":                     {"# curl -s " + curl + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl with two prompts":            {"me@host:~$ curl -s \\\n> " + curl + "'https://api.example.com" + target + "'", get, "api.example.com"},
		"curl in Markdown":                 {"```sh\ncurl -s " + curl + "'https://api.example.com" + target + "'\n```\n", get, "api.example.com"},
		"curl with curly quotes":           {"curl -s " + curl + "\u201chttps://api.example.com" + target + "\u201d", get, "api.example.com"},
		"curl --url-query":                 {"curl " + curl + "https://api.example.com/api/v1/equipment --url-query 'category=Power tools' --url-query page=2", get, "api.example.com"},
		"HAR with two signed":              {`{"log":{"entries":[` + harEntry("a") + "," + harEntry(get) + `]}}`, get, "api.example.com"},
		"HAR entry":                        {harEntry(get), get, "api.example.com"},
		"HAR":                              {`{"log":{"version":"1.2","entries":[{"request":{"method":"GET","url":"https://api.example.com/","headers":[]}},` + harEntry(get) + `]}}`, get, "api.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explain.Parse([]byte(c.capture), func(name string) string {
				return map[string]string{"SIGNATURE": c.signature, "URL": "https://api.example.com"}[name]
			})
			require.NoError(t, err)
			require.Equal(t, c.host, r.Host)
			cred := &authsigner.Credential{PublicKey: publicKey, PrivateKey: privateKey}
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			require.True(t, res.Verified, "%+v\n%+v", r, res)
		})
	}
}

func harEntry(signature string) string {
	return `{"startedDateTime":"2025-10-09T08:53:21.000Z","request":{"method":"GET","url":"https://api.example.com` + target +
		`","headers":[{"name":"x-public-key","value":"` + publicKey + `"},{"name":"x-timestamp","value":"1760000000"},` +
		`{"name":"x-signature","value":"` + signature + `"}]}}`
}

func TestWhatIsNotACaptureIsAnError(t *testing.T) {
	t.Parallel()
	for name, capture := range map[string]string{
		"empty": "", "text": "Something went wrong.", "HTTP response": "HTTP/1.1 200 OK\n\n", "JSON": `{"a":1}`, "invalid JSON": `{"log":`,
		"curl without a URL": "curl -s", "curl with an unclosed quote": "curl 'https://a/", "curl with a command": "curl https://a/$(id)",
		"curl with a missing file": "curl -d @/nonexistent/file https://a/", "no signed request": `{"log":{"entries":[{"request":{"url":"https://a/"}},{"request":{"url":"https://b/"}}]}}`,
		"curl -v with a body": "> POST / HTTP/1.1\n> Host: a\n> Content-Length: 7\n> \n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := explain.Parse([]byte(capture), func(string) string { return "" })
			require.ErrorIs(t, err, explain.ErrCapture)
		})
	}
}

// curl sends the line feed that xxd and base64 write after 60 or 76 characters.
func TestWrappedSignaturesAreRead(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("5a", 30)
	r, err := explain.Parse([]byte("GET / HTTP/1.1\r\nX-Signature: "+digits+"\n5a5a\r\nHost: a\r\n\r\n"), func(string) string { return "" })
	require.NoError(t, err)
	assert.Equal(t, digits+" 5a5a", r.Header.Get(authsigner.HeaderSignature))
}

func TestErrorsOfCapturesDoNotQuoteThem(t *testing.T) {
	t.Parallel()
	const signature = "5a5a5a5a5a5a5a5a"
	for name, capture := range map[string]string{
		"header without a colon": "GET / HTTP/1.1\nX-Signature " + signature + "\n\n", "header in two lines": "GET / HTTP/1.1\nX-Signature: a\n" + signature + "\n\n",
		"headers only": "X-Signature: " + signature + "\n", "unclosed quote": "curl -H 'X-Signature: " + signature, "header as a URL": "curl 'X-Signature: " + signature + "'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := explain.Parse([]byte(capture), func(string) string { return "" })
			require.ErrorIs(t, err, explain.ErrCapture)
			assert.NotContains(t, err.Error(), signature)
		})
	}
}

func FuzzParse(f *testing.F) {
	get, _ := signatures()
	f.Add([]byte(harEntry(get)))
	f.Add([]byte("curl -sS -d a=b -H 'X-Signature: " + get + "' https://a/b?c=d"))
	f.Add([]byte("POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n"))
	f.Add([]byte("curl &0\xcc"))
	canceled, cancel := context.WithCancel(context.Background()) // no search for pairs, which takes long
	cancel()
	f.Fuzz(func(t *testing.T, capture []byte) {
		if strings.Contains(string(capture), "@") { // would read files
			return
		}
		r, err := explain.Parse(capture, func(string) string { return "" })
		if err != nil {
			require.ErrorIs(t, err, explain.ErrCapture)
			return
		}
		if len(r.Target) > 1000 || len(r.Body) > 1000 {
			return
		}
		cred := &authsigner.Credential{PublicKey: publicKey, PrivateKey: "a private key that signed nothing"}
		require.False(t, explain.Read(r).Explain(canceled, cred, sentAt).Verified)
	})
}
