package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// Requests of programs in five languages, captured as they arrive, are explained.
func TestMistakesOfProgramsAreExplained(t *testing.T) {
	t.Parallel()
	caller := gatewaytest.Caller{PublicKey: "pk_live_0123456789", PrivateKey: "sk_live_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"}
	for program, mistakes := range map[string]map[string][]string{
		"python3 client.py": {
			"none":                nil,
			"float time":          {"timestamp_fraction"},
			"local time":          {"timestamp_other"},
			"quote and urlencode": {"path_encoded"},
			"body as dict":        {"body_encoded"},
			"none in f-string":    {"body_other"},
			"bytes literal":       {"signature_encoding"},
			"no hmac":             {"algorithm"},
		},
		"node client.mjs": {
			"none":           nil,
			"milliseconds":   {"timestamp_unit"},
			"pathname":       {"path_query_missing"},
			"href":           {"path_origin"},
			"searchParams":   {"path_encoded"},
			"undefined body": {"body_other"},
			"JSON":           {"newline_missing"},
			"base64":         {"signature_base64"},
		},
		"php client.php": {
			"none":                  nil,
			"microtime":             {"timestamp_fraction"},
			"date":                  {"timestamp_date"},
			"rawurlencode":          {"path_encoded"},
			"htmlspecialchars":      {"query_encoded"},
			"file with a line feed": {"secret_whitespace"},
			"single quotes":         {"newline_escaped"},
			"arguments swapped":     {"algorithm_arguments"},
		},
		"sh client.sh": {
			"echo":                    {"newline_extra"},
			"command substitution":    {"part_missing"},
			"escaped in quotes":       {"newline_escaped"},
			"all of openssl's output": {"signature_prefixed"},
			"binary in base64":        {"signature_base64"},
			"no key":                  {"algorithm"},
			"milliseconds":            {"timestamp_unit", "timestamp_other"},
		},
		"go": {
			"none":           nil,
			"Sum(message)":   {"signature_message"},
			"Sprint":         {"signature_encoding"},
			"Values.Encode":  {"query_encoded"},
			"URL.Path":       {"path_query_missing"},
			"UnixNano":       {"timestamp_unit"},
			"hex of the key": {"secret_encoded"},
		},
	} {
		for mistake, codes := range mistakes {
			t.Run(program+"/"+mistake, func(t *testing.T) {
				t.Parallel()
				request, err := explain.Parse(capture(t, func(base string) error { return runProgram(t, program, mistake, base, caller) }))
				require.NoError(t, err)
				request.At = time.Now()
				result := explain.Read(request).Explain(t.Context(), &authsigner.Credential{PublicKey: caller.PublicKey, PrivateKey: caller.PrivateKey}, time.Time{})
				var found []string
				for _, m := range result.Mistakes {
					found = append(found, m.Code)
				}
				assert.Equal(t, codes, found)
				require.True(t, result.Complete)
				assert.Equal(t, codes == nil, result.Verified)
			})
		}
	}
}

// capture runs a program against a server, and returns its request as it arrived.
func capture(t *testing.T, run func(base string) error) []byte {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	raw := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		var bytesRead bytes.Buffer
		req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(conn, &bytesRead)))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		raw <- bytesRead.Bytes()
		_, _ = io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}()
	require.NoError(t, run("http://"+listener.Addr().String()))
	select {
	case request := <-raw:
		return request
	case <-time.After(patience):
		require.Fail(t, "the program sent no request")
		return nil
	}
}

func runProgram(t *testing.T, program, mistake, base string, c gatewaytest.Caller) error {
	t.Helper()
	if program == "go" {
		return goProgram(t.Context(), mistake, base, c)
	}
	var interpreter, file string
	_, err := fmt.Sscan(program, &interpreter, &file)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, filepath.Join("testdata", "mistakes", file), mistake)
	cmd.Env = append(os.Environ(), "URL="+base, "KEY="+c.PublicKey, "SECRET="+c.PrivateKey.Reveal())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func goProgram(ctx context.Context, mistake, base string, c gatewaytest.Caller) error {
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	query := "status=sent&page=2&category=a%20b"
	path := "/api/v1/equipment?" + query
	signed, secret := path, c.PrivateKey.Reveal()
	switch mistake {
	case "Values.Encode":
		values, err := url.ParseQuery(query)
		if err != nil {
			return err
		}
		signed = "/api/v1/equipment?" + values.Encode()
	case "URL.Path":
		signed = "/api/v1/equipment"
	case "UnixNano":
		timestamp = strconv.FormatInt(time.Now().UnixNano(), 10)
	case "hex of the key":
		secret = hex.EncodeToString([]byte(secret))
	}
	message := []byte(timestamp + "\nGET\n" + signed + "\n")
	h := hmac.New(sha256.New, []byte(secret))
	var signature string
	switch mistake {
	case "Sum(message)":
		signature = hex.EncodeToString(h.Sum(message))
	case "Sprint":
		_, _ = h.Write(message)
		signature = fmt.Sprint(h.Sum(nil))
	default:
		_, _ = h.Write(message)
		signature = hex.EncodeToString(h.Sum(nil))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return err
	}
	req.Header = http.Header{"X-Public-Key": {c.PublicKey}, "X-Timestamp": {timestamp}, "X-Signature": {signature}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}
