package upstream_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The answers of the public contract were recorded before its tables became a document: what becomes of 8,000 responses of data services,
// valid, invalid and hostile ones, and of 20,000 queries. testdata/answers.txt has a hash for each resource.
func TestAnswersOfThePublicContractAreThoseRecorded(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for n, res := range resources() {
		random := rand.New(rand.NewPCG(uint64(n), 7))
		sum := sha256.New()
		for range 2000 {
			raw := randomQuery(random)
			q, err := res.CleanQuery(raw)
			_, _ = fmt.Fprintln(sum, raw, q.Raw, err)
		}
		accepted := 0
		for i := range 1000 {
			if res.ByGateway {
				break
			}
			choices := make([]byte, 400)
			for j := range choices {
				choices[j] = byte(random.Uint32())
				if i%2 == 0 { // mostly valid
					choices[j] %= 15
				}
			}
			perPage := random.IntN(5) + 1
			g := &generator{choices}
			body := []byte(g.response(res, perPage))
			if i%5 == 4 && len(body) > 0 {
				body[random.IntN(len(body))] = byte(random.Uint32())
			}
			q := query(1, perPage)
			if res.Envelope == "" {
				q = query(perPage)
			}
			c := &upstream.Contract{AllowMissingTenant: i%3 == 0, PassUnknownFields: map[string]bool{res.Name: i%7 == 0}}
			var out bytes.Buffer
			report, err := res.check(c, &out, q, mine, body)
			if violation, ok := errors.AsType[*upstream.ContractError](err); ok {
				_, _ = fmt.Fprintln(sum, errors.Is(err, upstream.ErrCrossTenantRecord), errors.Is(err, upstream.ErrMissingTenant), violation.Record)
			} else {
				accepted++
			}
			require.Empty(t, report.Deviations)
			_, _ = fmt.Fprintf(sum, "{Records:%d CrossTenant:%d MissingTenant:%d Unpublished:%d Surplus:%d Reordered:%t} %s\n",
				report.Records, report.CrossTenant, report.MissingTenant, report.Unpublished, report.Surplus, report.Reordered, out.Bytes())
		}
		_, _ = fmt.Fprintf(&got, "%s %d accepted %s\n", res.Name, accepted, hex.EncodeToString(sum.Sum(nil)))
	}
	want, err := os.ReadFile("testdata/answers.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// randomQuery returns a query with parameters of the contract and others, well-formed and not.
func randomQuery(random *rand.Rand) string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	var pairs []string
	for range random.IntN(5) {
		name := pick("page", "per_page", "count", "status", "type", "category", "payment_status", "x", "p%61ge", "Page", "", "st%ZZtus")
		value := pick("1", "2", "0", "-5", "101", "99999999999999999999", "-99999999999999999999", "1.5", "abc", "", "%31", "+1", "1e3", "active", "a b", "a+b",
			"%C3%A4", "%FF", "%00", "%zz", strings.Repeat("x", 127+random.IntN(3)), "a%3Bb", "~._-", "a=b", "%E2%82%AC")
		pairs = append(pairs, name+pick("=", "=", "=", "", "==")+value)
	}
	return strings.Join(pairs, pick("&", "&", "&", ";", "&&"))
}
