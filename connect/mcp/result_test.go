package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
)

// written is a result as the SDK's server writes it: marshalled, put into a response, and that marshalled.
func written(tb testing.TB, c *contents, t *tool, o *outcome) []byte {
	tb.Helper()
	result, err := t.success(o, c)
	require.NoError(tb, err)
	var inner bytes.Buffer
	e := json.NewEncoder(&inner)
	e.SetEscapeHTML(false)
	require.NoError(tb, e.Encode(result))
	id, err := jsonrpc.MakeID("1")
	require.NoError(tb, err)
	message, err := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Result: inner.Bytes()})
	require.NoError(tb, err)
	return message
}

func TestAnAnswerIsTheSameWhoeverWritesItsContents(t *testing.T) {
	t.Parallel()
	tool, o := manyContacts(t)
	c := newContents()
	ours := httptest.NewRecorder()
	message := written(t, c, tool, o)
	n, err := (&contentsWriter{ResponseWriter: ours, contents: c}).Write(message)
	require.NoError(t, err)
	require.Equal(t, len(message), n, "what the SDK wrote, which is what it asks for")
	require.JSONEq(t, string(written(t, nil, tool, o)), ours.Body.String())
	require.NotContains(t, ours.Body.String(), c.mark)
}

func TestWhatRepeatsAMarkOfAnotherAnswerIsLeftAlone(t *testing.T) {
	t.Parallel()
	tool, _ := manyContacts(t)
	c, another := newContents(), newContents()
	o := &outcome{value: pageValue("contacts", []any{}, `"`+another.textMark()+`" "`+another.structuredMark()+`"`)}
	_ = written(t, another, tool, o)
	require.JSONEq(t, string(written(t, nil, tool, o)), string(c.fill(written(t, c, tool, o))))
}

// BenchmarkResultWritten makes and writes a result of 25 contacts, as the SDK does and with the contents put in after it.
func BenchmarkResultWritten(b *testing.B) {
	tool, o := manyContacts(b)
	for _, later := range []bool{true, false} {
		b.Run(fmt.Sprintf("contents put in later=%t", later), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if later {
					c := newContents()
					_ = c.fill(written(b, c, tool, o))
				} else {
					_ = written(b, nil, tool, o)
				}
			}
		})
	}
}
