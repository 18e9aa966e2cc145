package authsigner_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

//go:generate go test -run ^TestVectorsFileIsWhatTheTableSays$ . -update

var update = flag.Bool("update", false, "write testdata/vectors.json from the table in vectors_table_test.go")

const vectorsPath = "testdata/vectors.json"

type vectorsFile struct {
	Description    string   `json:"description"`
	MaxSkewSeconds int      `json:"max_skew_seconds"`
	MaxBodyBytes   int      `json:"max_body_bytes"`
	Vectors        []vector `json:"vectors"`
}

// readVectors returns the vectors as they are committed, which is what other languages read.
func readVectors(tb testing.TB) []vector {
	tb.Helper()
	raw, err := os.ReadFile(vectorsPath)
	require.NoError(tb, err)
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var file vectorsFile
	require.NoError(tb, decoder.Decode(&file))
	require.Equal(tb, 300, file.MaxSkewSeconds)
	require.EqualValues(tb, authsigner.DefaultMaxBody, file.MaxBodyBytes)
	return file.Vectors
}

func TestVectorsFileIsWhatTheTableSays(t *testing.T) {
	t.Parallel()
	file := vectorsFile{
		Description: "Test vectors for the request signature of Gatehouse; README.md beside this file explains the fields. " +
			"All keys and secrets are made up.",
		MaxSkewSeconds: 300,
		MaxBodyBytes:   vectorBodyMax,
	}
	for _, c := range vectorCases() {
		file.Vectors = append(file.Vectors, c.vector())
	}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(file))
	if *update {
		require.NoError(t, os.WriteFile(vectorsPath, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(vectorsPath)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got), "run go generate ./authsigner and look at what changed")
}

func TestVectorsAreManyAndOfEveryVerdict(t *testing.T) {
	t.Parallel()
	names, verdicts := map[string]bool{}, map[string]int{}
	for _, v := range readVectors(t) {
		require.False(t, names[v.Name], "two vectors are named %q", v.Name)
		names[v.Name] = true
		verdicts[v.Verdict]++
	}
	require.GreaterOrEqual(t, len(names), 80)
	for _, verdict := range []string{
		verdictOK, verdictMissing, verdictExpired, verdictInvalid, verdictInactive, verdictTooLarge,
	} {
		require.GreaterOrEqual(t, verdicts[verdict], 3, verdict)
	}
	require.Len(t, verdicts, 6)
}

// TestVectorsAgreeWithTheReference holds the file against an implementation that shares nothing with the package.
func TestVectorsAgreeWithTheReference(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, v.Verdict, referenceVerdict(&v))
		})
	}
}

func TestVectorsAgreeWithVerify(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			source := &vectorSource{vector: &v}
			r := v.request()
			cred, err := v.verifier(source).Verify(r, v.Target)
			require.Equal(t, v.Verdict, verdictOf(t, cred, err))
			for _, key := range source.asked {
				require.True(t, authsigner.ValidPublicKey(key), "the source was asked for %q", key)
			}
			if v.Verdict != verdictTooLarge {
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, string(v.body()), string(body), "the body must be there again")
			}
		})
	}
}

// TestVectorsAgreeWithSign signs what the vectors say was signed, as a client in another language would.
func TestVectorsAgreeWithSign(t *testing.T) {
	t.Parallel()
	signed := 0
	for _, v := range readVectors(t) {
		if v.Signature == "" {
			continue
		}
		signed++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			var timestamp string
			for _, h := range v.Headers {
				if http.CanonicalHeaderKey(h[0]) == authsigner.HeaderTimestamp {
					timestamp = h[1]
				}
			}
			seconds, err := strconv.ParseInt(timestamp, 10, 64)
			require.NoError(t, err)
			if timestamp != strconv.FormatInt(seconds, 10) {
				return // leading zeros: a server accepts them, Sign never writes them
			}
			message := v.SigningString
			if v.SigningBase64 != "" {
				raw, err := base64.StdEncoding.DecodeString(v.SigningBase64)
				require.NoError(t, err)
				message = string(raw)
			}
			if v.BodyRepeat == 0 {
				require.Equal(t, message, string(authsigner.SigningString(seconds, v.Method, v.Target, v.body())))
			}
			secret := map[string]string{
				"private_key": v.Credential.PrivateKey, "previous_private_key": v.Credential.PreviousPrivateKey,
			}[v.SignedWith]
			require.Equal(t, v.Signature,
				authsigner.Sign(authsigner.Secret(secret), seconds, v.Method, v.Target, v.body()))
		})
	}
	require.GreaterOrEqual(t, signed, 40)
}

// TestVectorsAgreeWithVerifyOverTheWire sends each vector, byte by byte as it is written, to an http.Server that
// verifies r.RequestURI.
func TestVectorsAgreeWithVerifyOverTheWire(t *testing.T) {
	t.Parallel()
	vectors := readVectors(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.Header.Get("X-Vector"))
		if err != nil || i < 0 || i >= len(vectors) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		v := &vectors[i]
		cred, err := v.verifier(&vectorSource{vector: v}).Verify(r, r.RequestURI)
		w.Header().Set("X-Verdict", verdictOf(t, cred, err))
	}))
	t.Cleanup(server.Close)
	for i, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			verdict := sendRaw(t, server.Listener.Addr().String(), i, &v)
			control := func(s string) bool {
				return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\t' })
			}
			delivered := v
			delivered.Headers = nil
			broken := control(v.Method) || control(v.Target)
			for _, h := range v.Headers {
				value := strings.Trim(h[1], " \t") // HTTP knows no spaces around a value
				broken = broken || control(value)
				delivered.Headers = append(delivered.Headers, [2]string{h[0], value})
			}
			if broken { // HTTP cannot carry it; what becomes of the attempt is net/http's choice
				require.NotContains(t, []string{verdictOK, verdictInactive}, verdict)
				return
			}
			require.Equal(t, referenceVerdict(&delivered), verdict)
		})
	}
}

// sendRaw sends the vector over a connection of its own and returns the verdict, empty if there was none.
func sendRaw(t *testing.T, address string, i int, v *vector) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	var request bytes.Buffer
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: api.example.com\r\nX-Vector: %d\r\n", v.Method, v.Target, i)
	for _, h := range v.Headers {
		fmt.Fprintf(&request, "%s: %s\r\n", h[0], h[1])
	}
	body := v.body()
	switch {
	case len(body) == 0:
	case i%2 == 0:
		fmt.Fprintf(&request, "Content-Length: %d\r\n", len(body))
	default:
		fmt.Fprintf(&request, "Transfer-Encoding: chunked\r\n")
		body = []byte(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body))
	}
	fmt.Fprintf(&request, "Connection: close\r\n\r\n")
	request.Write(body)
	written := make(chan struct{})
	go func() { // a server that refuses early does not read the rest
		defer close(written)
		_, _ = conn.Write(request.Bytes())
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: v.Method})
	if err == nil {
		defer response.Body.Close()
	}
	_ = conn.SetWriteDeadline(time.Now())
	<-written
	require.NoError(t, err)
	return response.Header.Get("X-Verdict")
}

// request is the vector as net/http would deliver it.
func (v *vector) request() *http.Request {
	r := &http.Request{Method: v.Method, RequestURI: v.Target, Header: http.Header{}, Body: http.NoBody}
	for _, h := range v.Headers {
		r.Header.Add(h[0], h[1])
	}
	if body := v.body(); len(body) > 0 {
		r.Body, r.ContentLength = readCloser{bytes.NewReader(body)}, int64(len(body))
	}
	return r
}

func (v *vector) verifier(source authsigner.CredentialSource) *authsigner.Verifier {
	return &authsigner.Verifier{
		Source: source,
		Now:    func() time.Time { return time.Unix(v.Clock, v.ClockNanoseconds) },
	}
}

// vectorSource knows the vector's credential, by whatever key.
type vectorSource struct {
	vector *vector
	asked  []string
}

func (s *vectorSource) Lookup(_ context.Context, publicKey string) (*authsigner.Credential, error) {
	s.asked = append(s.asked, publicKey)
	c := s.vector.Credential
	if c == nil || c.PublicKey != publicKey {
		return nil, fmt.Errorf("reading the vector: %w", authsigner.ErrUnknownKey)
	}
	cred := &authsigner.Credential{
		PublicKey:          c.PublicKey,
		PrivateKey:         authsigner.Secret(c.PrivateKey),
		PreviousPrivateKey: authsigner.Secret(c.PreviousPrivateKey),
		BusinessID:         "1",
		Status:             authsigner.Status(c.Status),
	}
	if c.PreviousExpiresAt != "" {
		end, err := time.Parse(time.RFC3339, c.PreviousExpiresAt)
		if err != nil {
			return nil, err
		}
		cred.PreviousExpiresAt = end
	}
	return cred, nil
}

// verdictOf names what Verify returned, and holds it to returning a credential only when the signature was right.
func verdictOf(t *testing.T, cred *authsigner.Credential, err error) string {
	t.Helper()
	verdict := "no verdict: " + fmt.Sprint(err)
	for name, sentinel := range map[string]error{
		verdictMissing: authsigner.ErrMissingCredentials, verdictExpired: authsigner.ErrExpired,
		verdictInvalid: authsigner.ErrInvalidCredentials, verdictInactive: authsigner.ErrAccountInactive,
		verdictTooLarge: authsigner.ErrBodyTooLarge, verdictOK: nil,
	} {
		if errors.Is(err, sentinel) {
			verdict = name
		}
	}
	if (cred != nil) != (verdict == verdictOK || verdict == verdictInactive) {
		t.Errorf("verdict %s and credential %v", verdict, cred)
	}
	return verdict
}
