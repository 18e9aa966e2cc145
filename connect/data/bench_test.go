package data_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
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
			contact := `{"id":10403,"business_id":"biz_1","first_name":"` + names.first + `","last_name":"Halvorsen",` +
				`"email":"ines@example.com","phone_number":"6085550123","country_code":"+1","contact_type":"customer",` +
				`"contact_status":"active","notes":"` + names.notes + `","date_created":"2026-03-05T14:30:00Z",` +
				`"date_modified":"2026-03-05T14:30:00Z","version":1}`
			page := `{"contacts":[` + strings.Repeat(contact+",", 24) + contact + `],"next_cursor":null}`
			c, err := data.New(data.Options{Host: "data.internal", Do: calltest.Over(canned{[]byte(page)}), Log: zap.NewNop()})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Contacts().List(b.Context(), caller(), data.ContactFilter{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
