package cleantext_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// BenchmarkJSON cleans a list of 25 records of 400 bytes: of ASCII, which is the common case and only looked through, of
// another script, and with something hidden.
func BenchmarkJSON(b *testing.B) {
	for _, text := range []struct{ script, sample string }{
		{"ASCII", "Gate on the north side sticks."},
		{"escapes", `Gate on the \"north\" side\nsticks.`},
		{"Latin", "Größe: 12 m²; la puerta está atascada."},
		{"Devanagari", "उत्तर की ओर का द्वार अटक जाता है।"},
		{"hidden", "Gate on the north side\u202e sticks."},
	} {
		b.Run(text.script, func(b *testing.B) {
			record := `{"id":10403,"business_id":"biz_1","first_name":"Ines","last_name":"Halvorsen","email":"ines@example.com",` +
				`"phone_number":"6085550123","country_code":"+1","contact_type":"customer","contact_status":"active",` +
				`"notes":"` + text.sample + `","date_created":"2026-03-05T14:30:00Z","date_modified":"2026-03-05T14:30:00Z","version":1}`
			page := []byte(`{"contacts":[` + strings.Repeat(record+",", 24) + record + `],"next_cursor":null}`)
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				cleantext.JSON(page)
			}
		})
	}
}
