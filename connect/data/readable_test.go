package data_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestStringsInJSONAreCleaned(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":"b","n":[1,null,true]}`:            `{"a":"b","n":[1,null,true]}`,
		"{\"a\u200b\":\"b\u202e\"}":              `{"a":"b"}`,
		`{"a":"b\u202e","c":"\udb40\udc41"}`:     `{"a":"b","c":""}`,
		`["\u0000\b\f\r\n\t\"\\\/é\u00e9"]`:      `["\n\t\"\\/éé"]`,
		`["\n\t\"\\\/é\u00e9"]`:                  `["\n\t\"\\\/é\u00e9"]`,
		"[\"\x7f\"]":                             `[""]`,
		`{"deep":[{"er":["x\u00ad\"y\u00ad"]}]}`: `{"deep":[{"er":["x\"y"]}]}`,
		`["\\u200b"]`:                            `["\\u200b"]`,
		`["\u2028"]`:                             `["\n"]`,
		`[ "a\u200b" , 1.50 ]`:                   `[ "a" , 1.50 ]`,
	} {
		got, err := data.Readable([]byte(in), false)
		require.NoError(t, err, "%q", in)
		assert.Equal(t, want, string(got), "%q", in)
		got, err = data.Readable([]byte(in), true)
		require.NoError(t, err, "%q", in)
		assert.Equal(t, in, string(got), "what is written back is unchanged")
	}
	for _, in := range []string{
		`{"a":1,"a\u200b":2}`, `{"a":1,"a":2}`, `[1e400]`,
		// invalid JSON stays invalid
		"[\"\u200b", `["\ud800\u200b"]`, "[\"\xff\u200b\"]", "\u200b[1]", `["a\u200b" "b\q"]`, `"\`,
	} {
		_, err := data.Readable([]byte(in), false)
		require.ErrorIs(t, err, upstream.ErrContractViolation, "%q", in)
	}
}

func FuzzReadable(f *testing.F) {
	text, err := os.ReadFile("../../internal/cleantext/testdata/ordinary.json")
	require.NoError(f, err)
	var ordinary map[string]string
	require.NoError(f, json.Unmarshal(text, &ordinary))
	for _, s := range ordinary {
		quoted, err := json.Marshal(map[string]string{s: s})
		require.NoError(f, err)
		got, err := data.Readable(quoted, false)
		require.NoError(f, err)
		require.Equal(f, string(quoted), string(got), "ordinary text is unchanged")
		f.Add(s)
	}
	for _, s := range []string{"\xff", "a\u200c\u200db", "क्\u200d", "\u2028\u0085\r\n", "x\" y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted, err := json.Marshal([]string{strings.ToValidUTF8(s, "\ufffd")})
		require.NoError(t, err)
		cleaned, err := data.Readable(quoted, false)
		require.NoError(t, err)
		var back []string
		require.NoError(t, json.Unmarshal(cleaned, &back))
		require.Equal(t, []string{cleantext.Text(s)}, back)
		again, err := data.Readable(cleaned, false)
		require.NoError(t, err)
		require.Equal(t, string(cleaned), string(again))
	})
}
