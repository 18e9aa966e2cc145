package explain_test

import (
	"context"
	"strings"
	"testing"
	"time"

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

func TestCurlReadsNoFileForRawData(t *testing.T) {
	t.Parallel()
	r, err := explain.Parse([]byte(`curl --data 'a=1' --data-raw '@home' https://api.example.com/api/v1/jobs`))
	require.NoError(t, err)
	require.Equal(t, "a=1&@home", string(r.Body))
}

func TestCapturesAreRead(t *testing.T) {
	t.Parallel()
	get, post := signatures()
	headers := "X-Public-Key: " + publicKey + "\nX-Timestamp: 1760000000\nX-Signature: "
	curlWith := func(signature string) string {
		return "-H 'X-Public-Key: " + publicKey + "' -H 'X-Timestamp: 1760000000' -H \"X-Signature: " + signature + "\" "
	}
	curl, curlPost := curlWith(get), curlWith(post)
	address := "'https://api.example.com" + target + "'"
	raw := "GET " + target + " HTTP/1.1\nHost: api.example.com\n" + headers + get
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	for name, c := range map[string]struct{ capture, host string }{
		"HTTP/1.1":                         {crlf(raw + "\n\n"), "api.example.com"},
		"HTTP with LF":                     {raw + "\n\n", "api.example.com"},
		"HTTP without an empty line":       {raw, "api.example.com"},
		"HTTP/2 as tools print it":         {"GET " + target + " HTTP/2\nHost: api.example.com\n" + headers + get + "\n\n", "api.example.com"},
		"absolute form":                    {"GET http://api.example.com" + target + " HTTP/1.1\nHost: api.example.com\n" + headers + get + "\n\n", "api.example.com"},
		"body":                             {"POST /api/v1/jobs HTTP/1.1\nHost: a\n" + headers + post + "\n\n" + `{"a":1}`, "a"},
		"body, with the file's line feed":  {"POST /api/v1/jobs HTTP/1.1\nHost: a\nContent-Length: 7\n" + headers + post + "\n\n" + `{"a":1}` + "\n", "a"},
		"chunked body":                     {crlf("POST /api/v1/jobs HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n"+headers+post+"\n\n7\n") + "{\"a\":1}\r\n0\r\n\r\n", "a"},
		"body, with the response":          {crlf("POST /api/v1/jobs HTTP/1.1\nHost: a\nContent-Length: 7\n"+headers+post+"\n\n") + `{"a":1}HTTP/1.1 401 Unauthorized` + "\r\n\r\n{}", "a"},
		"GET with the response":            {raw + "\n\nHTTP/1.1 401 Unauthorized\nContent-Length: 2\n\n{}", "api.example.com"},
		"two requests":                     {raw + "\n\n" + raw + "\n\n", "api.example.com"},
		"HTTP file":                        {"### Equipment\n# of one category\n" + raw + "\n", "api.example.com"},
		"UTF-16":                           {wide("\ufeff" + raw + "\n\n"), "api.example.com"},
		"curl -v":                          {"* Connected to api.example.com\n> " + strings.ReplaceAll(raw, "\n", "\n> ") + "\n> \n< HTTP/1.1 401 Unauthorized\n< \n{}\n", "api.example.com"},
		"curl -v with its command":         {"$ curl -v https://api.example.com/\n> " + strings.ReplaceAll(raw, "\n", "\r\n> ") + "\r\n> \r\n", "api.example.com"},
		"curl":                             {"curl -sS " + curl + address, "api.example.com"},
		"curl, prompt and continued lines": {"$ curl --silent \\\n  " + curl + "\\\n  --path-as-is --globoff -o /dev/null -w '%{http_code}' \"https://api.example.com" + target + "\"\n", "api.example.com"},
		"curl --get":                       {"curl -G " + curl + "-d category=Power%20tools -d page=2 https://api.example.com/api/v1/equipment", "api.example.com"},
		"curl --data":                      {"curl " + curlPost + `-d '{"a":1}' https://api.example.com/api/v1/jobs`, "api.example.com"},
		"curl --data in double quotes":     {"curl " + curlPost + `--data-raw "{\"a\":1}" https://api.example.com/api/v1/jobs`, "api.example.com"},
		"curl --json":                      {"curl " + curlPost + `--json '{"a":1}' --url https://api.example.com/api/v1/jobs`, "api.example.com"},
		"curl from a browser":              {"curl 'https://api.example.com/api/v1/jobs' " + curlPost + `--data-raw '{"a":1}' --compressed --insecure`, "api.example.com"},
		"curl with short options joined":   {"curl -sSXPOST " + curlPost + `--data-binary '{"a":1}' https://api.example.com/api/v1/jobs`, "api.example.com"},
		"curl in UTF-16":                   {wide("\ufeffcurl " + curl + address + "\r\n"), "api.example.com"},
		"curl with its path":               {"/usr/bin/curl " + curl + address, "api.example.com"},
		"curl after other words":           {"TZ=UTC time curl " + curl + address, "api.example.com"},
		"curl with a pipe":                 {"curl -s " + curl + address + " 2>&1 | jq .", "api.example.com"},
		"curl and another command":         {"curl -s " + curl + address + " && echo; echo 'done", "api.example.com"},
		"curl in a script":                 {"#!/bin/sh\n# Equipment of one category\n\ncurl -s " + curl + address + "\n", "api.example.com"},
		"curl of set -x":                   {"+ curl -s " + curl + address, "api.example.com"},
		"curl with two prompts":            {"me@host:~$ curl -s \\\n> " + curl + address, "api.example.com"},
		"curl in Markdown":                 {"```sh\ncurl -s " + curl + address + "\n```\n", "api.example.com"},
		"curl with curly quotes":           {"curl -s " + curl + "\u201chttps://api.example.com" + target + "\u201d", "api.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explain.Parse([]byte(c.capture))
			require.NoError(t, err)
			require.Equal(t, c.host, r.Host)
			cred := &authsigner.Credential{PublicKey: publicKey, PrivateKey: privateKey}
			res := explain.Read(r).Explain(context.Background(), cred, sentAt)
			require.True(t, res.Verified, "%+v\n%+v", r, res)
		})
	}
}

func TestWhatIsNotACaptureIsAnError(t *testing.T) {
	t.Parallel()
	for name, capture := range map[string]string{
		"empty": "", "text": "Something went wrong.", "HTTP response": "HTTP/1.1 200 OK\n\n", "JSON": `{"a":1}`, "HAR": `{"log":{"entries":[]}}`,
		"curl without a URL": "curl -s", "curl with an unclosed quote": "curl 'https://a/", "curl with an option without its value": "curl https://a/ -H",
		"curl with another option": "curl -F a=b https://a/", "curl -v with a body": "> POST / HTTP/1.1\n> Host: a\n> Content-Length: 7\n> \n",
		"body that was cut off": "POST / HTTP/1.1\nHost: a\nContent-Length: 7\n\n{}", "too large": "GET / HTTP/1.1\nHost: a\n\n" + strings.Repeat("x", explain.MaxCapture),
		"headers that are too large": "GET / HTTP/1.1\nX: " + strings.Repeat("x", 64<<10), "URL that is too long": "curl https://a/" + strings.Repeat("x", 64<<10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := explain.Parse([]byte(capture))
			require.ErrorIs(t, err, explain.ErrCapture)
		})
	}
}

// What a shell or curl would replace by something of the reader's machine is neither replaced nor silently taken literally.
func TestCurlCommandsAreNotExpanded(t *testing.T) {
	t.Parallel()
	for name, argument := range map[string]string{
		"variable": `"$HOME"`, "variable in a word": `a=$HOME`, "variable in braces": `"${HOME}"`, "command": `"$(id)"`, "arithmetic": `$((1))`,
		"backticks": "`id`", "quoted backticks": "\"`id`\"", "ANSI-C quotes": `$'\x1b'`, "file as the body": `-d @/etc/passwd`,
		"file as the binary body": `--data-binary @/dev/zero`, "file as JSON": `--json @/etc/passwd`, "file with headers": `-H @/etc/passwd`,
		"file in an option's word": `-d@/etc/passwd`, "encoded file": `--data-urlencode a@/etc/passwd`, "form": `-F a=@/etc/passwd`,
		"upload": `-T /etc/passwd`, "configuration": `-K /etc/passwd`, "long configuration": `--config=/etc/passwd`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := explain.Parse([]byte("curl " + argument + " https://a/"))
			require.ErrorIs(t, err, explain.ErrCapture)
		})
	}
	for name, argument := range map[string]string{
		"single quotes": `'/$HOME/~/*'`, "escaped": `"/\$HOME/~/*"`, "escaped without quotes": `/\$HOME/~/*`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explain.Parse([]byte("curl https://a" + argument))
			require.NoError(t, err)
			assert.Equal(t, "/$HOME/~/*", r.Target)
		})
	}
	t.Run("process substitution", func(t *testing.T) {
		t.Parallel()
		for _, capture := range []string{"curl <(true) https://a/", "curl -d <(true) https://a/", "curl https://a/ <(true)", "curl https://a/ >(true)"} {
			_, err := explain.Parse([]byte(capture))
			if err != nil {
				assert.ErrorIs(t, err, explain.ErrCapture)
			}
		}
	})
}

// curl sends the line feed that xxd and base64 write after 60 or 76 characters.
func TestWrappedSignaturesAreRead(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("5a", 30)
	r, err := explain.Parse([]byte("GET / HTTP/1.1\r\nX-Signature: " + digits + "\n5a5a\r\nHost: a\r\n\r\n"))
	require.NoError(t, err)
	assert.Equal(t, digits+" 5a5a", r.Header.Get(authsigner.HeaderSignature))
}

func TestErrorsOfCapturesDoNotQuoteThem(t *testing.T) {
	t.Parallel()
	const signature = "5a5a5a5a5a5a5a5a"
	for name, capture := range map[string]string{
		"header without a colon": "GET / HTTP/1.1\nX-Signature " + signature + "\n\n", "header in two lines": "GET / HTTP/1.1\nX-Signature: a\n" + signature + "\n\n",
		"headers only": "X-Signature: " + signature + "\n", "unclosed quote": "curl -H 'X-Signature: " + signature, "header as a URL": "curl 'X-Signature: " + signature + "'",
		"unknown option": "curl --" + signature, "invalid chunk": "POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n" + signature + "x\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := explain.Parse([]byte(capture))
			require.ErrorIs(t, err, explain.ErrCapture)
			assert.NotContains(t, err.Error(), signature)
		})
	}
}

// The largest capture is explained in bounded time, whatever it holds.
func TestLargeCapturesAreExplainedInBoundedTime(t *testing.T) {
	t.Parallel()
	head := "POST /api/v1/jobs?a=b HTTP/1.1\nHost: a\nX-Public-Key: " + publicKey + "\nX-Timestamp: 1760000000\nX-Signature: " + strings.Repeat("5a", 32) + "\n\n"
	for name, unit := range map[string]string{
		"text": "x", "nested JSON": `[{"a":`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explain.Parse([]byte(head + strings.Repeat(unit, (explain.MaxCapture-len(head))/len(unit))))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cred := &authsigner.Credential{PublicKey: publicKey, PrivateKey: "a private key that signed nothing"}
			require.False(t, explain.Read(r).Explain(ctx, cred, sentAt).Complete)
			require.NoError(t, ctx.Err(), "the search has ended by itself")
		})
	}
}

func TestLargeCurlCommandsAreReadInBoundedTime(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"quotes": `a'b'`, "double quotes": `"\""`, "words": "a ", "options": "-s ", "escapes": `\a`, "lines": "\\\n> "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := explain.Parse([]byte("curl -d " + strings.Repeat(unit, 256<<10/len(unit)) + " https://a/"))
			if err != nil {
				assert.ErrorIs(t, err, explain.ErrCapture)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	get, _ := signatures()
	f.Add([]byte("curl -sS -d a=b -H 'X-Signature: " + get + "' https://a/b?c=d"))
	f.Add([]byte("POST /api/v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n"))
	f.Add([]byte("GET /a?b=c HTTP/1.1\nHost: a\nX-Public-Key: " + publicKey + "\nX-Timestamp: 1760000000\nX-Signature: " + get + "\n\n"))
	f.Add([]byte("curl &0\xcc"))
	f.Add([]byte("curl <(true)"))
	f.Add([]byte("curl \\"))
	f.Fuzz(func(t *testing.T, capture []byte) {
		r, err := explain.Parse(capture)
		if err != nil {
			require.ErrorIs(t, err, explain.ErrCapture)
			return
		}
		canceled, cancel := context.WithCancel(context.Background())
		cancel() // of everything, only the variants are computed
		cred := &authsigner.Credential{PublicKey: publicKey, PrivateKey: "a private key that signed nothing"}
		a := explain.Read(r)
		require.False(t, a.Explain(canceled, cred, sentAt).Verified)
		a.Behind(sentAt)
		a.ToSign()
	})
}
