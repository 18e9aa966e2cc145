package data_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/contacttest"
)

// canned responds with the same body to everything.
type canned struct{ body []byte }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(c.body)), ContentLength: int64(len(c.body)),
	}, nil
}

// BenchmarkContacts reads a list of 25 contacts of ASCII, of another script or with hidden characters.
func BenchmarkContacts(b *testing.B) {
	for _, names := range []struct{ script, first, notes string }{
		{"ASCII", "Ines", "Gate on the north side sticks."},
		{"escapes", "Ines", `Gate on the \"north\" side\nsticks.`},
		{"Latin", "Inés", "Größe: 12 m²; la puerta está atascada."},
		{"Devanagari", "इनेस", "उत्तर की ओर का द्वार अटक जाता है।"},
		{"hidden", "In\u200bes", "Gate on the north side\u202e sticks."},
	} {
		b.Run(names.script, func(b *testing.B) {
			page := contacttest.Page(contacttest.Contact("biz_1", names.first, names.notes), 25)
			c, err := data.New(data.Options{Host: "data.internal", Do: calltest.Over(canned{[]byte(page)}), Log: zap.NewNop()})
			require.NoError(b, err)
			contacts := connecttest.Operation(b, "listContacts")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Call(b.Context(), caller(), data.Request{Operation: contacts}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
