package file

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// Each key of a credential file is a credential or malformed. Errors name the line and contain no secret. Writing a file
// and reading it again changes nothing.
func FuzzParseSet(f *testing.F) {
	const good = `"pk_live_0123456789":{"private_key":"canary-secret","business_id":"1","business_name":"n","business_slug":"s","status":"active"}`
	for _, text := range []string{
		`{"keys":{}}`, `{"keys":{` + good + `}}`, "{\n\t\"keys\": {\n" + good + ",\n" + good + "}}", `{"keys":{` + good + `},"more":1}`,
		`{"keys":{"pk_live_0123456789":"canary-secret"}}`, `{"keys":{"pk_live_0123456789":{"private_key":["canary-secret"]}}}`,
		`{"keys":{"../canary":{"private_key":"canary-secret"}}}`, `{"keys":{"pk_live_0123456789":{"private_key":" canary-secret"}}}`,
		`{"keys":{"pk_live_0123456789":{"private_key":"canary-secret","private_key":"canary-secret"}}}`,
		`{"keys":null}`, `{"Keys":{}}`, `[]`, `null`, ``, `{"keys":{` + good, "\xff", `{"keys":{"\ud800":{}}}`,
	} {
		f.Add([]byte(text))
	}
	line := regexp.MustCompile(`^line [0-9]+: |^missing member "keys"$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSet(data)
		if err != nil {
			require.Nil(t, s)
			require.Regexp(t, line, err.Error())
			require.NotContains(t, err.Error(), "canary-secret")
			return
		}
		// encoding/json, which accepts more, finds the same keys
		var lax struct {
			Keys map[string]json.RawMessage `json:"keys"`
		}
		require.NoError(t, json.Unmarshal(data, &lax))
		require.Len(t, lax.Keys, len(s.creds)+len(s.malformed))
		for key, cred := range s.creds {
			require.Contains(t, lax.Keys, key)
			require.NotContains(t, s.malformed, key)
			require.Equal(t, key, cred.PublicKey)
			require.NoError(t, cred.Validate())
		}
		for key, err := range s.malformed {
			require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
			if !strings.Contains(key, "canary-secret") { // the entry's name is in its error
				require.NotContains(t, err.Error(), "canary-secret")
			}
		}
		d, err := parseDocument(data)
		require.NoError(t, err)
		written, err := d.bytes()
		require.NoError(t, err)
		again, err := parseSet(written)
		require.NoError(t, err)
		require.Empty(t, again.reuse(s))
		require.Len(t, again.malformed, len(s.malformed))
	})
}
