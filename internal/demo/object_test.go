package demo

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestObjectsMatchTheSchemaOfTheirType(t *testing.T) {
	t.Parallel()
	c := caller(t, connected(t, "", Options{}), owner())
	for fields, problems := range map[string]map[string]string{
		`{}`: {"fields.plate": "is required; allowed: string", "fields.make": "is required; allowed: string"},
		`{"plate":"A","make":"M","year":"1990","status":"gone","odometer_miles":-1,"next_inspection":"soon","colour":"red"}`: {
			"fields.plate":           "is 1 characters long; allowed: at least 2 characters",
			"fields.year":            "is of the kind string; allowed: integer",
			"fields.status":          "is not one of the allowed values; allowed: in_service, workshop, sold",
			"fields.odometer_miles":  "is too small; allowed: at least 0",
			"fields.next_inspection": "is not of the right form; allowed: the format date",
			"fields.colour":          "is not known here; allowed: assigned_to, make, model, next_inspection, odometer_miles, plate, status, year",
		},
		`{"plate":"` + strings.Repeat("A", 13) + `","make":null,"year":2101}`: {
			"fields.plate": "is 13 characters long; allowed: at most 12 characters",
			"fields.make":  "is of the kind null; allowed: string",
			"fields.year":  "is too large; allowed: at most 2100",
		},
		`{"plate":"AB","make":"M","next_inspection":"2026-02-30"}`: {"fields.next_inspection": "is not of the right form; allowed: the format date"},
	} {
		require.Equal(t, problems, c.refused(http.StatusUnprocessableEntity, "INVALID", "POST", "objects/vehicles", `{"fields":`+fields+`}`))
	}
	require.Equal(t, map[string]string{
		"fields.owner.name":       "is required",
		"fields.owner.contact_id": "is of the kind string; allowed: integer",
		"fields.species":          "is not one of the allowed values; allowed: dog, cat, chicken, bees, other",
	}, c.refused(http.StatusUnprocessableEntity, "INVALID", "POST", "objects/pets", `{"fields":{"name":"Rex","species":"lion","owner":{"contact_id":"7"}}}`))
	boilers := caller(t, shared, stranger())
	require.Contains(t, boilers.refused(http.StatusUnprocessableEntity, "INVALID", "POST", "objects/boilers",
		`{"fields":{"make":"M","serial_number":"ok?","fault_codes":["F1",2]}}`), "fields.fault_codes[1]")
}

func TestObjectsAreMadeMergedFoundAndDeleted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := connected(t, path, Options{})
	c := caller(t, s, owner())
	w := c.do("POST", "objects/pets", `{"fields":{"name":"Schnürchen","species":"cat","owner":{"name":"Ana","contact_id":9007199254740993},"notes":"<b>shy</b>"}}`)
	require.Equal(t, http.StatusCreated, w.Code)
	require.Contains(t, w.Body.String(), "9007199254740993", "numbers stay what they are")
	made := record(t, decode(t, w), "object")
	require.Equal(t, "pets", made["type"])
	id := "objects/pets/" + fmt.Sprint(made["id"])

	w = c.do("PATCH", id, `{"fields":{"friendly":false,"notes":null,"owner":{"name":"Ana Lund"}}}`)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "9007199254740993")
	changed := record(t, decode(t, w), "object")
	require.Equal(t, map[string]any{
		"name": "Schnürchen", "species": "cat", "friendly": false, "owner": map[string]any{"name": "Ana Lund", "contact_id": 9007199254740993.0},
	}, changed["fields"])

	require.Equal(t, changed, record(t, c.get(id), "object"))

	require.NoError(t, s.Close())
	s = connected(t, path, Options{})
	c = caller(t, s, owner())
	require.Equal(t, changed, record(t, c.get(id), "object"))
	for query, found := range map[string]bool{"schnurchen": true, "lund+CAT": true, "9007199254740993": true, "shy": false, "species": false, "contact_id": false} {
		require.Equal(t, found, len(c.all("objects/pets?query="+query, 10)) == 1, query)
	}
	counts := map[any]any{}
	for _, k := range c.all("object-types", 1) {
		require.NotContains(t, k, "schema")
		counts[k["name"]] = k["object_count"]
	}
	require.Equal(t, map[any]any{"pets": 5.0, "vehicles": 5.0}, counts)
	c.refused(http.StatusNotFound, "NOT_FOUND", "GET", strings.Replace(id, "pets", "vehicles", 1), "")
	c.refused(http.StatusNotFound, "NOT_FOUND", "DELETE", strings.Replace(id, "pets", "vehicles", 1), "")
	require.Equal(t, map[string]any{"deleted": true, "id": made["id"]}, c.ok("DELETE", id, ""))
	c.refused(http.StatusNotFound, "NOT_FOUND", "PATCH", id, `{"fields":{"friendly":true}}`)
}

func TestTheSizeOfAnObjectIsLimited(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	execute(t, s, "INSERT INTO object_types (business_id, name, title, schema) VALUES (?, 'bags', 'Bags', '{}')", owner().BusinessID)
	id := "objects/bags/" + fmt.Sprint(record(t, c.ok("POST", "objects/bags", `{"fields":{"a":"`+strings.Repeat("a", 40_000)+`"}}`), "object")["id"])
	c.invalid("PATCH", id, `{"fields":{"b":"`+strings.Repeat("b", 40_000)+`"}}`, "fields")
	nested := func(n int) string {
		return `{"fields":` + strings.Repeat(`{"a":[`, n) + "1" + strings.Repeat("]}", n) + "}"
	}
	bag := record(t, c.ok("POST", "objects/bags", nested(15)), "object")
	c.ok("PATCH", "objects/bags/"+fmt.Sprint(bag["id"]), nested(15))
	for _, n := range []int{16, 4000, 7000} {
		require.Contains(t, c.refused(http.StatusBadRequest, "INVALID_REQUEST", "POST", "objects/bags", nested(n)), "body")
	}
}

func TestTheSizeOfAPartOfAListIsLimited(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	execute(t, s, "INSERT INTO object_types (business_id, name, title, schema) VALUES (?, 'bags', 'Bags', '{}')", owner().BusinessID)
	made := map[string]bool{}
	for range 25 {
		made[fmt.Sprint(record(t, c.ok("POST", "objects/bags", `{"fields":{"a":"`+strings.Repeat("a", 60_000)+`"}}`), "object")["id"])] = true
	}
	parts := 0
	for cursor := ""; ; parts++ {
		w := c.do("GET", "objects/bags?limit=100"+cursor, "")
		require.Equal(t, http.StatusOK, w.Code)
		require.Less(t, w.Body.Len(), 1<<20)
		answer := decode(t, w)
		for _, o := range records(t, answer, "objects") {
			require.True(t, made[fmt.Sprint(o["id"])], "once, and not twice")
			delete(made, fmt.Sprint(o["id"]))
		}
		if answer["next_cursor"] == nil {
			break
		}
		cursor = "&cursor=" + fmt.Sprint(answer["next_cursor"])
	}
	require.Empty(t, made)
	require.GreaterOrEqual(t, parts, 2)
}
