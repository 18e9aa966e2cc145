package conform_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
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
        - {name: offset, in: query, schema: {type: integer, maximum: 10000, default: 0}}
        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 10}}
        - {name: kind, in: query, schema: {type: string, enum: [k1, k2, k3, k4, k5, k6, k7, k8]}}
        - {name: pinned, in: query, schema: {type: boolean}}
        - {name: folder_id, in: query, schema: {type: string, pattern: "^f[0-9]$"}}
        - {name: since, in: query, schema: {type: string, format: date}}
      responses:
        "422": {description: It is refused., content: {application/json: {schema: {type: object, properties: {title: {type: string}}}}}}
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
                  folder: {$ref: "#/components/schemas/Folder"}
                  notes: {type: array, maxItems: 50, items: {$ref: "#/components/schemas/Note"}}
                  offset: {type: integer}
    post:
      operationId: addNote
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
      responses:
        "201": {description: The note., content: {application/json: {schema: {$ref: "#/components/schemas/Note"}}}}
  /report:
    get:
      operationId: getReport
      x-gatehouse-tenant: request
      parameters:
        - {name: from, in: query, required: true, schema: {type: string, format: date}}
        - {name: to, in: query, required: true, schema: {type: string, format: date}}
        - {name: token, in: query, schema: {type: string, pattern: "^[0-9a-z-]{8,12}$"}}
        - {name: reader, in: query, schema: {type: integer}}
      responses:
        "200": {description: A report., content: {application/json: {schema: {type: object, required: [notes], properties: {notes: {type: integer}}}}}}
        "422": {description: It is refused., content: {application/json: {schema: {type: object, properties: {title: {type: string}}}}}}
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
    parameters:
      - {name: note, in: path, required: true, schema: {type: integer, minimum: 1}}
    post:
      operationId: addLine
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {text: {type: string}}}}}}
      responses: {"204": {description: It is added.}, "422": {description: The key came with another body.}}
    get:
      operationId: listLines
      responses:
        "200":
          description: The lines of a note.
          content:
            application/json:
              schema:
                type: array
                items: {type: object, required: [text, owner], properties: {text: {type: string}, owner: {type: string, x-gatehouse-internal: true}}}
  /moods:
    get:
      operationId: listMoods
      responses:
        "200":
          description: Moods.
          content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Mood"}}}}
  /moods/{text}: # a note has a member of that name, which is no reference to a mood
    get:
      operationId: getMood
      parameters:
        - {name: text, in: path, required: true, schema: {type: string, maxLength: 20}}
      responses:
        "200":
          description: A mood.
          x-gatehouse-records: {is: {id: text}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Mood"}}}
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
    Mood: {type: object, required: [id, owner], properties: {id: {type: string}, owner: {type: string, x-gatehouse-internal: true}}}
    Note:
      type: object
      required: [id, text, pinned, created]
      properties:
        folder_id: {type: [string, "null"], readOnly: true}
        id: {type: integer, readOnly: true}
        owner: {type: string, readOnly: true, x-gatehouse-internal: true}
        text: {type: string, minLength: 1, maxLength: 20}
        pinned: {type: boolean}
        created: {type: string, format: utc-date-time, readOnly: true}
    Folder: {type: object, properties: {parent: {$ref: "#/components/schemas/Folder"}}}
`

type note struct {
	ID      int       `json:"id"`
	Folder  string    `json:"folder_id"`
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
		n := note{ID: len(all[owner]) + 1, Folder: "f" + strconv.Itoa(len(all[owner])%2), Owner: owner, Text: text, Pinned: pinned, Created: time.Unix(int64(1e9+len(all[owner])), 0).UTC()}
		all[owner] = append(all[owner], n)
		return n
	}
	owned := func(notes []note) (own []note) {
		for _, n := range notes {
			n.Owner = "b"
			own = append(own, n)
		}
		return own
	}
	for i := range 7 {
		add("a", "a "+strconv.Itoa(i), i%2 == 0)
	}
	switch {
	case is("the same"): // as it comes from test data
		all["b"] = owned(all["a"])
	case is("one the same"):
		all["b"] = owned(all["a"][:1])
		fallthrough
	default:
		for i := range 3 {
			add("b", "b "+strconv.Itoa(i), false)
		}
	}
	if is("ahead") { // of what is created
		for len(all["b"]) < 7 {
			add("b", "b", false)
		}
		add("b", "created", false)
	}
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(r *http.Request, owner string, found *note) (status int, body any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			owner := r.Header.Get("X-Business-Id")
			if is("one list") && all[owner] != nil {
				owner = "a"
			}
			var status int
			var body any
			asked, _ := strconv.Atoi(r.PathValue("note"))
			owned := owner
			if (is("foreign") && r.Method == http.MethodDelete || is("foreign line") && r.Method == http.MethodPost) && asked > len(all[owner]) {
				owned = "a"
			}
			i := slices.IndexFunc(all[owned], func(n note) bool { return n.ID == asked && n.Text != "" })
			switch {
			case all[owner] == nil:
				status = http.StatusForbidden
			case asked > 0 && i < 0 && is("twice") && asked <= len(all[owned]): // it was removed
				status = http.StatusInternalServerError
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
		if kind := r.FormValue("kind"); kind != "" && is(kind) || is("limit") && limit > 40 {
			return http.StatusUnprocessableEntity, map[string]string{"title": "It is refused."}
		}
		if is("since") && r.FormValue("since") != "" {
			return http.StatusLocked, nil
		}
		own := []note{}
		for _, n := range slices.Backward(all[owner]) {
			folder := r.FormValue("folder_id") == "" || is("folder") || r.FormValue("folder_id") == n.Folder
			if n.Text != "" && folder && (r.FormValue("pinned") == "" || is("filter") || r.FormValue("pinned") == strconv.FormatBool(n.Pinned)) {
				own = append(own, n)
			}
		}
		from := offset
		if is("pages") {
			from = offset * limit // as if it were a page
		}
		if is("last page") && from > 0 && from+limit > len(own) {
			own = own[:0]
		}
		return 200, map[string]any{"notes": own[min(from, len(own)):min(from+limit, len(own))], "offset": offset}
	})
	handle("POST /api/notes", func(r *http.Request, owner string, _ *note) (int, any) {
		var n note
		_ = json.NewDecoder(r.Body).Decode(&n)
		if is("ahead") {
			n.Text, n.Pinned = "created", false
		}
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
	bodies := map[string]string{} // by key
	handle("POST /api/notes/{note}/lines", func(r *http.Request, owner string, _ *note) (int, any) {
		body, _ := io.ReadAll(r.Body)
		key := owner + r.Header.Get("Idempotency-Key")
		if earlier, known := bodies[key]; known && earlier != string(body) {
			return 422, nil
		}
		bodies[key] = string(body)
		return 204, nil
	})
	handle("GET /api/report", func(r *http.Request, owner string, _ *note) (int, any) {
		from, _ := time.Parse(time.DateOnly, r.FormValue("from"))
		to, _ := time.Parse(time.DateOnly, r.FormValue("to"))
		if to.Before(from) || to.After(from.AddDate(1, 0, 0)) || r.FormValue("token") != "" || r.FormValue("reader") != "" {
			return http.StatusUnprocessableEntity, map[string]string{"title": "It is refused."}
		}
		return 200, map[string]int{"notes": len(all[owner])}
	})
	handle("GET /api/moods", func(_ *http.Request, owner string, _ *note) (int, any) {
		return 200, []any{map[string]string{"id": "calm-" + owner, "owner": owner}}
	})
	handle("GET /api/moods/{text}", func(r *http.Request, owner string, _ *note) (int, any) {
		if r.PathValue("text") != "calm-"+owner {
			return 404, nil
		}
		return 200, map[string]string{"id": "calm-" + owner, "owner": owner}
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
	for way, rule := range map[string]string{
		"": "", "filter": "filter", "folder": "filter", "limit": "parameter", "since": "parameter", "pages": "paging", "last page": "paging", "delete": "delete", "twice": "status",
		"foreign": "isolation", "foreign line": "isolation", "k7": "parameter", "lines": "schema",
	} {
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

func TestEachParameterThatIsRefusedIsNamed(t *testing.T) {
	t.Parallel()
	for _, documented := range []string{"422", "424"} { // the service responds with 422 for the limit
		d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(strings.Replace(notesDocument, "422", documented, 1))}, definition.Options{})
		require.NoError(t, err)
		service := httptest.NewServer(notes("limit", "since"))
		report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a"})
		service.Close()
		require.NoError(t, err)
		var refused []string
		for _, f := range report.Faults {
			refused = append(refused, f.Rule+" "+f.Request)
		}
		require.Equal(t, []string{"parameter GET /api/notes?limit=50", "parameter GET /api/notes?since=2024-02-29"}, refused)
	}
}

func TestPagesAreComparedWhateverTheirMinimum(t *testing.T) {
	t.Parallel()
	text := strings.Replace(notesDocument, "limit, in: query, schema: {type: integer, minimum: 1", "limit, in: query, schema: {type: integer, minimum: 3", 1)
	d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	service := httptest.NewServer(notes("pages"))
	defer service.Close()
	report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", B: "b"})
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(report.Faults, func(f conform.Finding) bool { return f.Rule == "paging" }))
}

func TestOffsetsAreKnownByTheirNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"startIndex", "from", "first", "position"} {
		d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(strings.ReplaceAll(notesDocument, "offset", name))}, definition.Options{})
		require.NoError(t, err)
		handler := notes()
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorded := httptest.NewRecorder()
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, name+"=", "offset=", 1)
			handler.ServeHTTP(recorded, r)
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(bytes.Replace(recorded.Body.Bytes(), []byte(`"offset"`), []byte(strconv.Quote(name)), 1))
		}))
		report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", B: "b"})
		service.Close()
		require.NoError(t, err)
		require.Empty(t, report.Faults, name)
	}
}

func TestRecordsThatBothBusinessesHaveAreNoLeak(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "notes.yaml", Text: []byte(notesDocument)}, definition.Options{})
	require.NoError(t, err)
	const skipped, leak = "skipped listNotes: isolation: A and B have records with the same ID", "fault isolation: listNotes: GET /api/notes"
	for name, c := range map[string]struct {
		way, want string
		write     bool
	}{
		"one of the numbers that both have":       {way: "one the same", want: skipped},
		"all, and what is created is kept apart":  {way: "the same", want: skipped, write: true},
		"all, and nothing shows whose they are":   {way: "the same", want: leak},
		"all, and what is created is everybody's": {way: "one list", want: leak, write: true},
		"what is created, which B had before":     {way: "ahead", want: "skipped removeNote: isolation: A and B have records with the same ID", write: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := httptest.NewServer(notes(c.way))
			defer service.Close()
			report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", B: "b", Write: c.write})
			require.NoError(t, err)
			var printed strings.Builder
			require.NoError(t, report.Print(&printed))
			require.Contains(t, printed.String(), c.want)
			require.Equal(t, c.want == leak, len(report.Faults) > 0, printed.String())
		})
	}
}

// boxesDocument is an API whose service has other names, and the business in the path.
const boxesDocument = `
openapi: 3.1.0
info: {title: Boxes, version: "1"}
servers: [{url: "https://boxes.internal/v1"}]
x-gatehouse-tenant: request
x-gatehouse-upstream: {content_type: text/html}
paths:
  /boxes:
    get:
      operationId: listBoxes
      x-gatehouse-upstream: {path: "/accounts/{business}/BoxList", query: {offset: "{page.offset}", limit: "{per_page}"}}
      parameters:
        - {name: page, in: query, schema: {type: integer, minimum: 1, maximum: 1000, default: 1}}
        - {name: per_page, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 10}}
      responses:
        "200":
          description: Boxes.
          x-gatehouse-records: {in: boxes, from: /Result/Rows, at_most: per_page}
          x-gatehouse-page: [{request: page, response: /page}]
          content:
            application/json:
              schema:
                type: object
                required: [boxes, page]
                properties:
                  boxes: {type: array, maxItems: 50, items: {$ref: "#/components/schemas/Box"}}
                  page: {type: integer, x-gatehouse-from: {parameter: page}}
    post:
      operationId: addBox
      x-gatehouse-upstream: {path: "/accounts/{business}/Box"}
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Box"}}}}
      responses:
        "200": {description: The box., x-gatehouse-records: {from: /Result/Row}, content: {application/json: {schema: {$ref: "#/components/schemas/Box"}}}}
  /boxes/{box}:
    get:
      operationId: getBox
      x-gatehouse-upstream: {path: "/accounts/{business}/Box/{box}.json"}
      parameters: [{name: box, in: path, required: true, schema: {type: string, pattern: "^([0-9]{1,3}|[0-9]{7}|[0-9]{20})$"}}]
      responses:
        "200": {description: The box., x-gatehouse-records: {from: /Result/Row, is: {id: box}}, content: {application/json: {schema: {$ref: "#/components/schemas/Box"}}}}
components:
  schemas:
    Box:
      type: object
      required: [id, price]
      properties:
        id: {type: string, readOnly: true, x-gatehouse-from: BOX_NO}
        price: {type: string, format: decimal, x-gatehouse-from: {member: CENTS, as: cents}}
        color: {type: string}
`

// boxes is a service of the document, which reads no header. What it is called with names the ways in which it is broken.
func boxes(broken ...string) http.Handler {
	is := func(way string) bool { return slices.Contains(broken, way) }
	type box struct {
		No     string `json:"BOX_NO"`
		Cents  any    `json:"CENTS"`
		Margin int    `json:"MARGIN,omitempty"`
		Color  int    `json:"color,omitempty"` // which is a string
		Owner  string `json:"ACCOUNT,omitempty"`
	}
	var mu sync.Mutex
	last := overwritten()
	all, made := map[string][]box{}, 0
	add := func(account string, cents any) box {
		made++
		b := box{No: fmt.Sprintf("%07d", made), Cents: cents}
		if is("margin") {
			b.Margin = 7
		}
		if is("color") {
			b.Color = 7
		}
		if is("text") {
			b.Cents = "none"
		}
		if is("long") {
			b.No = fmt.Sprintf("%020d", made)
		}
		if is("short") {
			b.No = strconv.Itoa(made)
		}
		if is("owned") {
			b.Owner = account
		}
		all[account] = append(all[account], b)
		return b
	}
	for i := range 6 {
		add([]string{"a", "b"}[i%2], 100*i)
	}
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(r *http.Request, account string) (key string, rows any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			account := r.PathValue("account")
			if is("confused") {
				account = last(account)
			}
			mu.Lock()
			defer mu.Unlock()
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			if is("default") && all[account] == nil {
				account = "a"
			}
			key, rows := serve(r, account)
			if all[account] == nil || rows == nil {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"Result": map[string]any{key: rows}})
		})
	}
	handle("GET /accounts/{account}/BoxList", func(r *http.Request, account string) (string, any) {
		offset, _ := strconv.Atoi(r.FormValue("offset"))
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		if is("late") {
			offset = max(offset-1, 0)
		}
		own := append([]box{}, all[account]...)
		return "Rows", own[min(offset, len(own)):min(offset+limit, len(own))]
	})
	handle("GET /accounts/{account}/Box/{file}", func(r *http.Request, account string) (string, any) {
		for owner, rows := range all {
			for _, b := range rows {
				if b.No+".json" == r.PathValue("file") && (owner == account || is("foreign") || is("masked")) {
					if owner != account && is("masked") {
						b.Cents = 0
					}
					return "Row", b
				}
				if is("another") && owner == account {
					return "Row", b
				}
			}
		}
		return "Row", nil
	})
	handle("POST /accounts/{account}/Box", func(r *http.Request, account string) (string, any) {
		var sent map[string]any
		_ = json.NewDecoder(r.Body).Decode(&sent)
		return "Row", add(account, sent["CENTS"])
	})
	return mux
}

func TestConformHoldsServicesWithOtherNames(t *testing.T) {
	t.Parallel()
	var documents []*definition.Definition
	for _, id := range []string{"id", "no"} { // what the ID is called
		text := strings.NewReplacer("id: box", id+": box", "[id,", "["+id+",", " id: {type", " "+id+": {type").Replace(boxesDocument)
		if id == "no" { // the mapping says which parameter is the page
			text = strings.Replace(text, "          x-gatehouse-page: [{request: page, response: /page}]\n", "", 1)
		}
		d, err := definition.Load(definition.File{Name: "boxes.yaml", Text: []byte(text)}, definition.Options{})
		require.NoError(t, err)
		documents = append(documents, d)
	}
	owner := strings.NewReplacer("x-gatehouse-tenant: request", "x-gatehouse-tenant: owner", "        color:", "        owner: {type: string, readOnly: true, x-gatehouse-from: ACCOUNT}\n        color:")
	owned, err := definition.Load(definition.File{Name: "boxes.yaml", Text: []byte(owner.Replace(boxesDocument))}, definition.Options{})
	require.NoError(t, err)
	for _, c := range []struct{ way, rules, hint string }{
		{"", "", "no-idempotency"},
		{"long", "", "no-idempotency"},
		{"short", "", "no-idempotency"},
		{"margin", "", "undocumented"},
		{"text", "schema", ""},
		{"foreign", "isolation", ""},
		{"foreign color", "isolation", ""},
		{"masked", "isolation", ""},
		{"another", "record", ""},
		{"late", "paging", ""},
		{"default", "unknown-business", ""},
		{"confused", "isolation", ""},

		{"text foreign", "schema isolation", ""}, // one fault hides no other one
		{"text masked", "schema isolation", ""},
		{"text another", "schema record", ""},
		{"text late", "schema paging", ""},

		{"owned", "", "no-idempotency"},
		{"owned foreign", "isolation", ""},
		{"owned default", "unknown-business", ""},
		{"owned default text", "schema unknown-business", ""},
		{"owned confused", "isolation", ""},
	} {
		t.Run(c.way, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(6) {
				d := documents[seed%2]
				if strings.HasPrefix(c.way, "owned") {
					d = owned
				}
				service := httptest.NewServer(boxes(strings.Fields(c.way)...))
				report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", B: "b", Write: true, Seed: seed})
				service.Close()
				require.NoError(t, err)
				var printed strings.Builder
				require.NoError(t, report.Print(&printed))
				faults, hints := []string{}, []string{}
				for _, f := range report.Faults {
					faults = append(faults, f.Rule)
					require.False(t, f.Rule == "schema" && f.Pointer == "/price" && f.Got != "a string of 4 characters", "it is what the service sent: %s", printed.String())
				}
				for _, f := range report.Hints {
					hints = append(hints, f.Rule)
					require.NotContains(t, f.Pointer, "//")
				}
				if c.rules == "" {
					require.Empty(t, faults, printed.String())
				}
				require.Subset(t, faults, strings.Fields(c.rules), printed.String())
				if c.hint != "" {
					require.Contains(t, hints, c.hint, printed.String())
				}
				if c.way == "" {
					require.Len(t, hints, 1, printed.String())
				}
			}
		})
	}
}

// The service cannot be blamed for an ID that is not sent.
func TestConformRefusesABusinessThatCannotBeInAPath(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "boxes.yaml", Text: []byte(boxesDocument)}, definition.Options{})
	require.NoError(t, err)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a request was sent: %s", r.URL) }))
	t.Cleanup(service.Close)
	for want, o := range map[string]conform.Options{
		"invalid business A: invalid identity: the business ID cannot be part of the path that the definition has for listBoxes": {A: "acme/1"},
		"invalid business B: invalid identity: the business ID cannot be part of the path":                                       {A: "a", B: "info@acme.example"},
		"invalid business A: invalid identity: business ID and request ID must be 1 to 256 bytes of visible ASCII":               {A: "Müller"},
	} {
		o.Definition, o.URL = d, service.URL
		_, err := conform.Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}

const boatsDocument = `
openapi: 3.1.0
info: {title: Boats, version: "1"}
x-gatehouse-tenant: request
paths:
  /boats:
    get:
      operationId: listBoats
      parameters:
        - {name: kind, in: query, schema: {type: string, enum: [sail, motor]}}
        - {name: free, in: query, schema: {type: boolean}}
        - {name: owner, in: query, schema: {type: string, format: uuid}}
      responses:
        "404": {description: No such owner., content: {application/json: {schema: {type: object, properties: {code: {type: string}}}}}}
        "200": {description: Boats., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Boat"}}}}}
    post:
      operationId: addBoat
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Boat"}}}}
      responses:
        "201": {description: The boat., content: {application/json: {schema: {$ref: "#/components/schemas/Boat"}}}}
  /boats/{boat}:
    parameters: [{name: boat, in: path, required: true, schema: {type: string, maxLength: 9}}]
    get:
      operationId: getBoat
      responses:
        "200":
          description: The boat.
          headers: {ETag: {schema: {type: string}}}
          content: {application/json: {schema: {$ref: "#/components/schemas/Boat"}}}
        "404": {description: None., content: {application/json: {schema: {type: object, properties: {code: {type: string, enum: [none]}}}}}}
    put:
      operationId: changeBoat
      parameters: [{name: If-Match, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {example: {kind: motor, free: true}, schema: {$ref: "#/components/schemas/Boat"}}}}
      responses: {"204": {description: It is changed.}}
components:
  schemas:
    Boat:
      type: object
      required: [id, kind, free]
      properties: {id: {type: string, maxLength: 9, readOnly: true}, kind: {type: string, enum: [sail, motor]}, free: {type: boolean}}
`

func TestFindingsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "boats.yaml", Text: []byte(boatsDocument)}, definition.Options{})
	require.NoError(t, err)
	const boat, other = `{"id":"b1","kind":"sail","free":true}`, `{"id":"b2","kind":"sail","free":true}`
	type response struct {
		status       int
		header, body string
	}
	for name, c := range map[string]struct {
		responses map[string]response // by business, method and path, or a part of these
		want      []string
		not       string
	}{
		"another value": {
			map[string]response{"GET /boats": {200, "", `[{"id":"b1","kind":"rowing","free":true}]`}},
			[]string{"expected a value that is one of the possible values"},
			"the parameter kind",
		},
		"a filter":        {nil, []string{"fault filter: listBoats: GET /boats?free=false", "another value: a boolean"}, ""},
		"304":             {map[string]response{"GET /boats": {304, "", ""}}, []string{"fault status: listBoats"}, "fault redirect"},
		"a request ID":    {map[string]response{"GET /boats": {200, "X-Request-Id", "[]"}}, []string{"expected the X-Request-Id of the request, or none"}, ""},
		"a coding":        {map[string]response{"GET /boats": {200, "Content-Encoding", "[]"}}, []string{"expected a body as its Content-Encoding says"}, ""},
		"an error's code": {map[string]response{"b GET /boats/b1": {404, "", `{"code":"x"}`}}, []string{"  at       /code\n", "got      a string of 1 characters"}, ""},
		"500 for B":       {map[string]response{"b GET /boats/b1": {500, "", "{}"}}, []string{"fault status: getBoat: GET /boats/{boat} as B"}, "fault isolation"},
		"404 for a list": {
			map[string]response{"GET /boats": {404, "", `{"code":"none"}`}},
			[]string{"fault status: listBoats: GET /boats as A\n  expected success for a list of A", "\nNo request succeeded.\n"},
			"",
		},
		"an object for a list after a write": {
			map[string]response{"GET /boats": {200, "", "{}"}, "POST": {201, "", boat}}, []string{"fault schema: listBoats"}, "fault create",
		},
		"what was not created": {map[string]response{"POST": {201, "", strings.Replace(boat, "b1", "b9", 1)}}, []string{"fault create: getBoat"}, "fault precondition"},
		"what was not changed": {
			map[string]response{"POST": {201, "", other}, "PUT": {204, "", ""}, "a GET /boats/b2": {200, "Etag", other}},
			[]string{"fault change: getBoat: GET /boats/{boat} as A\n  expected another record after changeBoat\n"},
			"at       /free\n  expected what",
		},
		"no ETag": {
			map[string]response{"POST": {201, "", other}, "a GET /boats/b2": {200, "", other}}, []string{"fault header: getBoat", "expected the ETag"}, "fault precondition",
		},
		"a creation without its own response": {map[string]response{"POST": {201, "X-Request-Id", other}}, []string{"skipped addBoat: its request got no valid response"}, "status 0"},
		"a record that existed":               {map[string]response{"POST": {201, "", boat}}, []string{"skipped addBoat: its response has a record that existed before"}, "changeBoat: PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				response := response{404, "", "{}"}
				asked := r.Header.Get("X-Business-Id") + " " + r.Method + " " + r.URL.Path
				switch asked {
				case "a GET /boats":
					response.status, response.body = 200, "["+boat+"]"
				case "a GET /boats/b1":
					response.status, response.body = 200, boat
				}
				for part, other := range c.responses {
					if strings.HasSuffix(asked, part) || part == r.Method {
						response = other
					}
				}
				w.Header().Set("Content-Type", "application/json")
				if response.header != "" {
					w.Header().Set(response.header, "br")
				}
				if r.URL.Query().Has("owner") {
					response.status, response.body = 404, "{}"
				}
				w.WriteHeader(response.status)
				_, _ = w.Write([]byte(response.body))
			}))
			t.Cleanup(service.Close)
			report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", B: "b", Write: true})
			require.NoError(t, err)
			var printed strings.Builder
			require.NoError(t, report.Print(&printed))
			for _, want := range c.want {
				assert.Contains(t, printed.String(), want)
			}
			if c.not != "" {
				assert.NotContains(t, printed.String(), c.not)
			}
			assert.NotContains(t, printed.String(), "fault parameter", "no owner has that ID")
		})
	}
}

// A service may insist on a media type that a body of a definition cannot have, such as that of JSON:API.
func TestHeaderSetsTheContentTypeOfBodies(t *testing.T) {
	t.Parallel()
	const media = "application/vnd.api+json"
	d, err := definition.Load(definition.File{Name: "stock.yaml", Text: []byte(stockDocument)}, definition.Options{})
	require.NoError(t, err)
	const skipped = "skipped addProduct: its body got status 415"
	for name, c := range map[string]struct {
		header    http.Header
		want, not string
	}{
		"without the header": {nil, skipped, "give the document an example"},
		"with it":            {http.Header{"Content-Type": {media}}, " 0 faults", "skipped addProduct"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accepting := stock("")
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && r.Header.Get("Content-Type") != media {
					w.WriteHeader(http.StatusUnsupportedMediaType)
					return
				}
				accepting.ServeHTTP(w, r)
			}))
			t.Cleanup(service.Close)
			report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "1001", B: "1002", Write: true, Header: c.header})
			require.NoError(t, err)
			var printed strings.Builder
			require.NoError(t, report.Print(&printed))
			require.Contains(t, printed.String(), c.want)
			require.NotContains(t, printed.String(), c.not)
		})
	}
}

func TestAServiceMayReadNewKeysLater(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "boats.yaml", Text: []byte(boatsDocument)}, definition.Options{})
	require.NoError(t, err)
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for after, want := range map[time.Duration]bool{0: true, time.Millisecond: false} {
		var asked atomic.Int32
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
		report, err := conform.Run(t.Context(), conform.Options{
			Definition: d, URL: service.URL, A: "a", Asserter: upstream.AsserterOptions{Issuer: "gatehouse", Keys: []ed25519.PrivateKey{key}}, KeysAfter: after,
		})
		service.Close()
		require.NoError(t, err)
		require.Equal(t, want, slices.ContainsFunc(report.Faults, func(f conform.Finding) bool { return f.Expected == "a response to a right assertion" }))
	}
}

// animalsDocument is an API with versions in the body of records, an If-Match, and an operation that writes to people.
const animalsDocument = `
openapi: 3.1.0
info: {title: Animals, version: "1"}
servers: [{url: "https://animals.internal/v1"}]
x-gatehouse-tenant: request
paths:
  /animals:
    get:
      operationId: listAnimals
      responses:
        "200": {description: Animals., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Animal"}}}}}
    post:
      operationId: addAnimal
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Animal"}}}}
      responses:
        "201": {description: The animal., content: {application/json: {schema: {$ref: "#/components/schemas/Animal"}}}}
  /animals/{animal}:
    parameters: [{name: animal, in: path, required: true, schema: {type: integer, minimum: 1}}]
    get:
      operationId: getAnimal
      responses:
        "200":
          description: The animal.
          content: {application/json: {schema: {type: object, required: [animal], properties: {animal: {$ref: "#/components/schemas/Animal"}}}}}
    put:
      operationId: changeAnimal
      x-gatehouse-tool: {VERSION}
      parameters: [{name: If-Match, in: header, required: REQUIRED, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Animal"}}}}
      responses:
        "200": {description: The animal., content: {application/json: {schema: {$ref: "#/components/schemas/Animal"}}}}
  /reminders:
    post:
      operationId: remind
      x-gatehouse-tool: {risk: people}
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {text: {type: string}}}}}}
      responses: {"204": {description: It is sent.}}
components:
  schemas:
    Animal:
      type: object
      required: [id, name, version]
      properties: {id: {type: integer, readOnly: true}, name: {type: string, minLength: 1}, version: {type: integer, readOnly: true}}
`

// animals is a service of the document. What it is called with names the ways in which it differs from a usual one. reminded is called when
// people are written to.
func animals(reminded func(), ways ...string) http.Handler {
	is := func(way string) bool { return slices.Contains(ways, way) }
	type animal struct {
		ID      int    `json:"id"`
		Name    string `json:"name"`
		Version int    `json:"version"`
	}
	var mu sync.Mutex
	all := []animal{{1, "Ada", 1}, {2, "Bo", 1}}
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(r *http.Request, id int) (status int, body any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			status, body := http.StatusForbidden, any(nil)
			if id, _ := strconv.Atoi(r.PathValue("animal")); id > len(all) {
				status = http.StatusNotFound
			} else if r.Header.Get("X-Business-Id") == "a" {
				status, body = serve(r, id)
			}
			if w.WriteHeader(status); status != http.StatusNoContent {
				_ = json.NewEncoder(w).Encode(body)
			}
		})
	}
	handle("GET /v1/animals", func(*http.Request, int) (int, any) { return 200, all })
	handle("POST /v1/animals", func(r *http.Request, _ int) (int, any) {
		made := animal{Version: 1}
		_ = json.NewDecoder(r.Body).Decode(&made)
		made.ID = len(all) + 1
		if is("zero") {
			made.ID = 0
		}
		all = append(all, made)
		return 201, made
	})
	handle("GET /v1/animals/{animal}", func(_ *http.Request, id int) (int, any) { return 200, map[string]any{"animal": all[id-1]} })
	handle("PUT /v1/animals/{animal}", func(r *http.Request, id int) (int, any) {
		found := &all[id-1]
		if match := r.Header.Get("If-Match"); !is("lax") && match != "" && match != strconv.Quote(strconv.Itoa(found.Version)) {
			return 412, nil
		}
		before := found.Name
		_ = json.NewDecoder(r.Body).Decode(found)
		if is("renaming") {
			found.Name += "!"
		}
		if !is("one version") && !(is("idle") && found.Name == before) {
			found.Version++
		}
		return 200, found
	})
	handle("POST /v1/reminders", func(*http.Request, int) (int, any) {
		reminded()
		return 204, nil
	})
	return mux
}

// conformOfAnimals asks a service of the document.
func conformOfAnimals(t *testing.T, version, required string, o conform.Options, ways ...string) conform.Report {
	t.Helper()
	text := strings.NewReplacer("VERSION", version, "REQUIRED", required).Replace(animalsDocument)
	d, err := definition.Load(definition.File{Name: "animals.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	service := httptest.NewServer(animals(func() { assert.Fail(t, "people are written to") }, ways...))
	t.Cleanup(service.Close)
	o.Definition, o.URL, o.A = d, service.URL, "a"
	report, err := conform.Run(t.Context(), o)
	require.NoError(t, err)
	return report
}

func TestAnIfMatchIsTriedWithTheVersionThatIsKnown(t *testing.T) {
	t.Parallel()
	const known = "version: /animal/version"
	for name, c := range map[string]struct {
		version, required string
		ways              []string // of the service
		fault, skipped    string
	}{
		"with a version in the body, optional":            {version: known, required: "false"},
		"with a version in the body, required":            {version: known, required: "true"},
		"with a version, and a service that ignores it":   {version: known, required: "false", ways: []string{"lax"}, fault: "precondition"},
		"with a version that stays if nothing is changed": {version: known, required: "false", ways: []string{"idle"}, skipped: "changeAnimal: the example of its request changes nothing"},
		"with a version that counts real changes": {
			version: known, required: "false", ways: []string{"idle", "renaming"},
		},
		"with a version that stays when the record is changed": {
			version: known, required: "false", ways: []string{"one version", "renaming"}, fault: "precondition",
		},
		"with an ID that its path cannot have":          {version: known, required: "true", ways: []string{"zero"}, skipped: "changeAnimal: its path"},
		"without an ETag or a version":                  {required: "false", skipped: "changeAnimal: If-Match: neither"},
		"without an ETag or a version, although needed": {required: "true", skipped: "changeAnimal: If-Match: neither"},
		"where the record has none":                     {version: "version: /animal/none", required: "false", skipped: "changeAnimal: If-Match: neither"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := conformOfAnimals(t, c.version, c.required, conform.Options{Write: true}, c.ways...)
			var printed strings.Builder
			require.NoError(t, report.Print(&printed))
			if c.fault == "" {
				require.Empty(t, report.Faults, printed.String())
			} else {
				require.Contains(t, printed.String(), "fault "+c.fault+": changeAnimal")
			}
			if c.skipped == "" {
				require.NotContains(t, printed.String(), "skipped changeAnimal")
			} else {
				require.Contains(t, printed.String(), "skipped "+c.skipped)
			}
		})
	}
}

func TestAnExampleThatIsNotValidIsNamed(t *testing.T) {
	t.Parallel()
	const body = `parameters: [{name: x, in: path, required: true, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {example: {n: one}, schema: {type: object, properties: {n: {type: integer}}}}}}
      responses: {"204": {description: It is done.}}
`
	d, err := definition.Load(definition.File{Name: "x.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: X, version: "1"}
x-gatehouse-tenant: request
paths:
  /x/{x}:
    put:
      operationId: put
      ` + body + `    post:
      operationId: post
      ` + body)}, definition.Options{})
	require.NoError(t, err)
	service := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(service.Close)
	report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "a", Write: true})
	require.NoError(t, err)
	const why = ": no request could be made: give the document a valid example of its parameters and its body"
	require.Subset(t, report.Skipped, []string{"put" + why, "post" + why})
	require.Zero(t, report.Requests)
}

func TestWhatWritesToPeopleIsNotSent(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]bool{"reading": false, "writing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := conformOfAnimals(t, "", "false", conform.Options{Write: write})
			require.Contains(t, report.Skipped, "remind: it writes to people")
		})
	}
}
