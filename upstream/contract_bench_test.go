package upstream_test

import (
	"bytes"
	"testing"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func BenchmarkCheck(b *testing.B) {
	unordered := records(25, invoice)
	unordered[3], unordered[20] = unordered[20], unordered[3]
	for _, bm := range []struct {
		name, resource string
		body           []byte
	}{
		{"10 events", "events", eventsAnswer(records(10, event)...)},
		{"25 invoices", "invoices", page("invoices", records(25, invoice)...)},
		{"25 contacts", "contacts", page("contacts", records(25, contact)...)},
		{"25 invoices unordered", "invoices", page("invoices", unordered...)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			res := upstream.ByName(bm.resource)
			q, err := res.CleanQuery("")
			if err != nil {
				b.Fatal(err)
			}
			var c upstream.Contract
			var dst bytes.Buffer
			b.SetBytes(int64(len(bm.body)))
			b.ReportAllocs()
			for b.Loop() {
				dst.Reset()
				if _, err := c.Check(&dst, res, q, mine, bm.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
