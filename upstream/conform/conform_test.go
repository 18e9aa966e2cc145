package conform_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/conform.md")
	require.NoError(t, err)
	for _, rule := range conform.Rules() {
		kind := "fault"
		if rule.Hint {
			kind = "hint"
		}
		assert.Contains(t, string(page), "| `"+rule.Name+"` | "+rule.What+" | "+kind+" |\n")
	}
}

// notesDocument is an API that differs from the examples: IDs of each business from 1, offsets, nested paths, no assertions, and DELETE.
const notesDocument = `
openapi: 3.1.0
info: {title: Notes, version: "1"}
servers: [{url: "https://notes.internal/api"}]
x-gatehouse-tenant: owner
paths:
  /notes:
    get:
      operationId: listNotes
      parameters:
        - {name: offset, in: query, schema: {type: integer, minimum: 0, maximum: 10000, default: 0}}
        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 10}}
        - {name: pinned, in: query, schema: {type: boolean}}
      responses:
        "200":
          description: Notes.
          x-gatehouse-records: {in: notes, order: [created], at_most: limit}
          x-gatehouse-page: [{request: offset, response: /offset}]
          content:
            application/json:
              schema:
                type: object
                required: [notes, offset]
                properties:
                  notes: {type: array, maxItems: 50, items: {$ref: "#/components/schemas/Note"}}
                  offset: {type: integer}
    post:
      operationId: addNote
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
      responses:
        "201": {description: The note., content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
  /notes/{note}:
    parameters:
      - {name: note, in: path, required: true, schema: {type: integer, minimum: 1}}
    get:
      operationId: getNote
      responses:
        "200":
          description: The note.
          x-gatehouse-records: {is: {id: note}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}
    delete:
      operationId: removeNote
      x-gatehouse-tenant: request
      responses:
        "204": {description: It is removed.}
  /notes/{note}/lines:
    get:
      operationId: listLines
      parameters:
        - {name: note, in: path, required: true, schema: {type: integer, minimum: 1}}
      responses:
        "200":
          description: The lines of a note.
          content:
            application/json:
              schema:
                type: array
                items: {type: object, required: [text, owner], properties: {text: {type: string}, owner: {type: string, x-gatehouse-internal: true}}}
  /motd:
    get:
      operationId: getMessage
      x-gatehouse-public: true
      x-gatehouse-tenant: none
      responses:
        "200":
          description: A message.
          content: {application/json: {schema: {type: object, required: [text], properties: {text: {type: string}}}}}
components:
  schemas:
    Note:
      type: object
      required: [id, text, pinned, created]
      properties:
        id: {type: integer, readOnly: true}
        owner: {type: string, readOnly: true, x-gatehouse-internal: true}
        text: {type: string, minLength: 1, maxLength: 20}
        pinned: {type: boolean}
        created: {type: string, format: utc-date-time, readOnly: true}
`

type note struct {
	ID      int       `json:"id"`
	Owner   string    `json:"owner"`
	Text    string    `json:"text"`
	Pinned  bool      `json:"pinned"`
	Created time.Time `json:"created"`
}

// notes is a service of the document. What it is called with names the ways in which it is broken.
func notes(broken ...string) http.Handler {
	is := func(way string) bool { return slices.Contains(broken, way) }
	var mu sync.Mutex
	all := map[string][]note{}
	add := func(owner, text string, pinned bool) note {
		n := note{ID: len(all[owner]) + 1, Owner: owner, Text: text, Pinned: pinned, Created: time.Unix(int64(1e9+len(all[owner])), 0).UTC()}
		all[owner] = append(all[owner], n)
		return n
	}
	for i := range 7 {
		add("a", "a "+strconv.Itoa(i), i%2 == 0)
	}
	for i := range 3 {
		add("b", "b "+strconv.Itoa(i), false)
	}
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(r *http.Request, owner string, found *note) (status int, body any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			owner := r.Header.Get("X-Business-Id")
			var status int
			var body any
			asked, _ := strconv.Atoi(r.PathValue("note"))
			owned := owner
			if is("foreign") && r.Method == http.MethodDelete && asked > len(all[owner]) {
				owned = "a"
			}
			i := slices.IndexFunc(all[owned], func(n note) bool { return n.ID == asked && n.Text != "" })
			switch {
			case all[owner] == nil:
				status = http.StatusForbidden
			case asked > 0 && i < 0:
				status = http.StatusNotFound
			case i >= 0:
				status, body = serve(r, owner, &all[owned][i])
			default:
				status, body = serve(r, owner, nil)
			}
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			w.Header().Set("Content-Type", "application/json")
			if w.WriteHeader(status); status != http.StatusNoContent {
				_ = json.NewEncoder(w).Encode(body)
			}
		})
	}
	handle("GET /api/notes", func(r *http.Request, owner string, _ *note) (int, any) {
		offset, _ := strconv.Atoi(r.FormValue("offset"))
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		own := []note{}
		for _, n := range slices.Backward(all[owner]) {
			if n.Text != "" && (r.FormValue("pinned") == "" || is("filter") || r.FormValue("pinned") == strconv.FormatBool(n.Pinned)) {
				own = append(own, n)
			}
		}
		from := offset
		if is("pages") {
			from = offset * limit * 2
		}
		return 200, map[string]any{"notes": own[min(from, len(own)):min(from+limit, len(own))], "offset": offset}
	})
	handle("POST /api/notes", func(r *http.Request, owner string, _ *note) (int, any) {
		var n note
		_ = json.NewDecoder(r.Body).Decode(&n)
		return 201, add(owner, n.Text, n.Pinned)
	})
	handle("GET /api/notes/{note}", func(_ *http.Request, _ string, found *note) (int, any) { return 200, found })
	handle("DELETE /api/notes/{note}", func(_ *http.Request, _ string, found *note) (int, any) {
		if !is("delete") {
			found.Text = ""
		}
		return 204, nil
	})
	handle("GET /api/notes/{note}/lines", func(_ *http.Request, owner string, found *note) (int, any) {
		if is("lines") {
			return 200, []any{map[string]any{"text": 7, "owner": owner}}
		}
		return 200, []any{map[string]string{"text": found.Text, "owner": owner}}
	})
	mux.HandleFunc("GET /api/motd", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		if r.Header.Get("X-Business-Id") != "-" { // of callers that the gateway does not know
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte(`{"text":"hello"}`))
	})
	return mux
}

func TestConformHoldsServicesOfOtherForms(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(notesDocument)}, definition.Options{})
	require.NoError(t, err)
	for way, rule := range map[string]string{"": "", "filter": "filter", "pages": "paging", "delete": "delete", "foreign": "isolation", "lines": "schema"} {
		for seed := range uint64(10) {
			service := httptest.NewServer(notes(way))
			report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", B: "b", Write: true, Seed: seed})
			service.Close()
			require.NoError(t, err)
			var printed strings.Builder
			require.NoError(t, report.Print(&printed))
			for _, f := range report.Faults {
				require.Equal(t, rule, f.Rule, printed.String())
			}
			require.Equal(t, rule == "", len(report.Faults) == 0, way+": "+printed.String())
			require.Len(t, report.Hints, 1, printed.String()) // no Idempotency-Key is documented
			require.Equal(t, "no-idempotency", report.Hints[0].Rule)
		}
	}
}
