package demo

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestObjectsAreCreatedMergedFoundAndDeleted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := connected(t, path, Options{})
	c := caller(t, s, owner())
	w := c.do("POST", "objects/pets", `{"fields":{"name":"Schnürchen","species":"cat","owner":{"name":"Ana","contact_id":9007199254740993},"notes":"<b>shy</b>"}}`)
	require.Contains(t, w.Body.String(), "9007199254740993", "numbers keep their digits")
	made := record(t, decode(t, w), "object")
	require.Equal(t, "pets", made["type"])
	id := "objects/pets/" + fmt.Sprint(made["id"])

	w = c.do("PATCH", id, `{"fields":{"friendly":false,"notes":null,"owner":{"name":"Ana Lund"}}}`)
	require.Contains(t, w.Body.String(), "9007199254740993")
	changed := record(t, decode(t, w), "object")
	require.Equal(t, map[string]any{
		"name": "Schnürchen", "species": "cat", "friendly": false, "owner": map[string]any{"name": "Ana Lund", "contact_id": 9007199254740993.0},
	}, changed["fields"])

	require.NoError(t, s.Close())
	s = connected(t, path, Options{})
	c = caller(t, s, owner())
	require.Equal(t, changed, c.one(id, "object"))
	for query, found := range map[string]bool{"schnurchen": true, "lund+CAT": true, "9007199254740993": true, "shy": false, "species": false} {
		assert.Equal(t, found, len(c.all("objects/pets?query="+query, 10)) == 1, query)
	}
	counts := map[any]any{}
	for _, k := range c.all("object-types", 1) {
		require.NotContains(t, k, "schema")
		counts[k["name"]] = k["object_count"]
	}
	require.Equal(t, map[any]any{"pets": 5.0, "vehicles": 5.0}, counts)
	for _, method := range []string{"GET", "DELETE"} {
		c.notFound(method, strings.Replace(id, "pets", "vehicles", 1), "")
	}
	require.Equal(t, map[string]any{"deleted": true, "id": made["id"]}, c.ok("DELETE", id, ""))
	c.notFound("PATCH", id, `{"fields":{"friendly":true}}`)
}

// bags adds a type of objects that may have any fields.
func bags(t *testing.T) *as {
	t.Helper()
	s := connected(t, "", Options{})
	execute(t, s, "INSERT INTO object_types (business_id, name, title, schema) VALUES (?, 'bags', 'Bags', '{}')", owner().BusinessID)
	return caller(t, s, owner())
}

func TestTheSizeOfAnObjectIsLimited(t *testing.T) {
	t.Parallel()
	c := bags(t)
	large := c.made("objects/bags", "object", `{"fields":{"a":"`+strings.Repeat("a", 40_000)+`"}}`)
	c.invalid("PATCH", "objects/bags/"+fmt.Sprint(large["id"]), `{"fields":{"b":"`+strings.Repeat("b", 40_000)+`"}}`, "fields")
	nested := func(n int) string {
		return `{"fields":` + strings.Repeat(`{"a":[`, n) + "1" + strings.Repeat("]}", n) + "}"
	}
	deep := c.made("objects/bags", "object", nested(15))
	c.ok("PATCH", "objects/bags/"+fmt.Sprint(deep["id"]), nested(15))
	for _, n := range []int{16, 7000} {
		assert.Contains(t, c.rejected(http.StatusBadRequest, "INVALID_REQUEST", "POST", "objects/bags", nested(n)), "body")
	}
}

func TestTheSizeOfAPartOfAListIsLimited(t *testing.T) {
	t.Parallel()
	c := bags(t)
	var made, found []string
	for range 25 {
		made = append(made, fmt.Sprint(c.made("objects/bags", "object", `{"fields":{"a":"`+strings.Repeat("a", 60_000)+`"}}`)["id"]))
	}
	parts := 0
	for cursor := ""; cursor != "&cursor=<nil>"; parts++ {
		w := c.do("GET", "objects/bags?limit=100"+cursor, "")
		require.Less(t, w.Body.Len(), 1<<20)
		answer := decode(t, w)
		found = append(found, ids(records(t, answer, "objects"))...)
		cursor = "&cursor=" + fmt.Sprint(answer["next_cursor"])
	}
	assert.ElementsMatch(t, made, found)
	assert.GreaterOrEqual(t, parts, 2)
}
