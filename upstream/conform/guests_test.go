package conform_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
)

// guestsDocument is an API with filters by texts, pages or cursors of them, and all methods.
const guestsDocument = `x-gatehouse-tenant: request
paths:
  /guests:
    get:
      operationId: listGuests
      parameters:
        - {name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}
        - {name: size, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}
        - {name: name, in: query, schema: {type: string}}
        - {name: email, in: query, schema: {type: string, format: email}}
        - {name: tag, in: query, schema: {type: array, items: {type: string}}}
        - {name: state, in: query, schema: {type: string, enum: [here, left]}}
      responses:
        "200":
          description: Guests.
          x-gatehouse-records: {in: guests, at_most: size, order: [created]}
          x-gatehouse-page: [{request: page, response: /page}]
          content:
            application/json:
              schema:
                type: object
                required: [guests, page]
                properties: {guests: {type: array, items: {$ref: "#/components/schemas/Guest"}}, page: {type: integer}, TOTAL: {type: integer}}
        "422": {description: It is refused.}
    post:
      operationId: addGuest
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Guest"}, example: {name: Olga Berg, email: olga@example.com, state: here, note: by the window}}}}
      responses:
        "201": {description: The guest., headers: {Location: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/Guest"}}}}
        "422": {description: It is refused.}
  /visits:
    get:
      operationId: listVisits
      parameters:
        - {name: cursor, in: query, schema: {type: string}}
        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}
        - {name: room, in: query, schema: {type: string}}
        - {name: kind, in: query, schema: {type: string, enum: [day, night]}}
      responses:
        "200":
          description: Visits.
          x-gatehouse-records: {in: visits, at_most: limit}
          x-gatehouse-page: [{cursor: cursor, response: /next}]
          content:
            application/json:
              schema:
                type: object
                required: [visits]
                properties: {visits: {type: array, items: {type: object, required: [id, room, kind], properties: {id: {type: string}, room: {type: string}, kind: {type: string}}}}, next: {type: string}}
        "422": {description: It is refused.}
  /guests/{guest}:
    parameters: [{name: guest, in: path, required: true, schema: {type: string, pattern: "^g-[0-9]+$"}}]
    get:
      operationId: getGuest
      responses:
        "200": {description: The guest., headers: {ETag: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/Guest"}}}}
        "403": {description: Forbidden., content: {application/json: {schema: {$ref: "#/components/schemas/Error"}}}}
        "404": {description: None., content: {application/json: {schema: {$ref: "#/components/schemas/Error"}}}}
    put:
      operationId: replaceGuest
      parameters: [{name: If-Match, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Guest"}, example: {name: Olga Holm, email: holm@example.com, state: here}}}}
      responses: {"200": {description: The guest., content: {application/json: {schema: {$ref: "#/components/schemas/Guest"}}}}}
    patch:
      operationId: changeGuest
      parameters: [{name: If-Match, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {type: object, properties: {state: {type: string, enum: [here, left]}}}, example: {state: left}}}}
      responses: {"200": {description: The guest., content: {application/json: {schema: {$ref: "#/components/schemas/Guest"}}}}}
    delete:
      operationId: removeGuest
      responses: {"204": {description: It is gone.}}
components:
  schemas:
    Error: {type: object, required: [code], properties: {code: {type: string}}}
    Guest:
      type: object
      required: [id, name, email, state, created]
      properties:
        id: {type: string, readOnly: true}
        name: {type: string, minLength: 1}
        email: {type: string, format: email}
        state: {type: string, enum: [here, left]}
        tag: {type: string}
        note: {type: string, maxLength: 80}
        number: {type: string}
        created: {type: string, format: utc-date-time, readOnly: true}
`

type guest struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Email   string `json:"email"`
	State   string `json:"state"`
	Tag     string `json:"tag,omitempty"`
	Note    string `json:"note,omitempty"`
	Number  string `json:"number,omitempty"`
	Created string `json:"created"`
	of      string
	version int
}

// guestsTotal returns the name of the number of all guests.
func guestsTotal(way string) string {
	if way == "pages as total" || way == "page total" {
		return "total"
	}
	return "total_items"
}

// guests is a service of the document. way names how it is broken, or differs from a usual one.
func guests(way string) http.Handler {
	is := func(other string) bool { return other == way }
	var mu sync.Mutex
	var all []*guest
	n := 0
	add := func(of string, g guest) *guest {
		n++
		g.ID, g.of, g.version, g.Created = fmt.Sprint("g-", 100+n), of, 1, fmt.Sprintf("2025-01-02T00:%02d:%02dZ", n/60, n%60)
		all = append(all, &g)
		return &g
	}
	for _, of := range []string{"17", "18"} {
		for i, name := range []string{"Ada Byron", "Bo Lind", "Cy Young", "Di Prince", "Ed Wood", "Flo Ray", "Gus Fring"} {
			first, _, _ := strings.Cut(strings.ToLower(name), " ")
			add(of, guest{Name: name, Email: first + "@" + of + ".example", State: []string{"here", "here", "left"}[i%3], Tag: []string{"red", "blue"}[i%2], Number: fmt.Sprint(of, i)})
		}
	}
	byKey, bodies := map[string]guest{}, map[string]string{}
	contains := func(value, text string) bool {
		switch {
		case is("exact"):
			return value == text
		case is("folded"):
			return strings.EqualFold(value, text)
		case is("words"): // any of them
			return slices.ContainsFunc(strings.Fields(text), func(word string) bool { return strings.Contains(strings.ToLower(value), strings.ToLower(word)) })
		}
		return strings.Contains(strings.ToLower(value), strings.ToLower(text))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		business := r.Header.Get("X-Business-Id")
		answer := func(status int, body any) {
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			w.Header().Set("Content-Type", "application/json")
			if g, ok := body.(*guest); ok {
				w.Header().Set("ETag", strconv.Quote(strconv.Itoa(g.version)))
			}
			w.WriteHeader(status)
			if body != nil {
				_ = json.NewEncoder(w).Encode(body)
			}
		}
		id := strings.TrimPrefix(r.URL.Path, "/guests/")
		i := slices.IndexFunc(all, func(g *guest) bool { return g.ID == id && g.of == business })
		page, _ := strconv.Atoi(cmp.Or(r.FormValue("page"), "1"))
		switch {
		case business != "17" && business != "18":
			answer(http.StatusForbidden, object{"code": "NOBODY"})
		case r.URL.Path == "/guests" && r.Method == http.MethodGet:
			own := []*guest{}
			q := r.URL.Query()
			for _, g := range slices.Backward(all) {
				later := page > 1 && is("later pages")
				owned := g.of == business || is("foreign by email") && q.Has("email")
				named := q.Get("name") == "" || is("name ignored") || contains(g.Name, q.Get("name")) || is("name or email") && contains(g.Email, q.Get("name"))
				mailed := q.Get("email") == "" || is("email ignored") || contains(g.Email, q.Get("email"))
				if is("name lost") && q.Get("name") != "" {
					named = false
				}
				tagged := len(q["tag"]) == 0 || slices.Contains(q["tag"], g.Tag)
				stated := q.Get("state") == "" || q.Get("state") == g.State
				if owned && (later || named && mailed && tagged && stated) {
					own = append(own, g)
				}
			}
			size, _ := strconv.Atoi(cmp.Or(r.FormValue("size"), "20"))
			from := min((page-1)*size, len(own))
			shown := own[from:min(from+size, len(own))]
			total := len(own)
			switch {
			case is("page total"):
				total = len(shown)
			case is("total of all"):
				total = len(all)
			case is("pages as total"):
				total = (len(own) + size - 1) / size
			}
			answer(200, object{"guests": shown, "page": page, guestsTotal(way): total})
		case r.URL.Path == "/visits":
			type visit struct {
				ID   string `json:"id"`
				Room string `json:"room"`
				Kind string `json:"kind"`
			}
			from, _ := strconv.Atoi(r.FormValue("cursor"))
			if is("cursor alone") && r.URL.Query().Has("cursor") && (r.FormValue("room") != "" || r.FormValue("kind") != "") {
				answer(422, nil)
				return
			}
			own := []visit{}
			for i := range 9 {
				v := visit{fmt.Sprint(business, "-", i), []string{"oak", "elm", "ash"}[i%3], []string{"day", "night"}[i%2]}
				if from > 0 && is("later cursors") || (r.FormValue("room") == "" || contains(v.Room, r.FormValue("room"))) && (r.FormValue("kind") == "" || r.FormValue("kind") == v.Kind) {
					own = append(own, v)
				}
			}
			limit, _ := strconv.Atoi(cmp.Or(r.FormValue("limit"), "20"))
			body := object{"visits": own[min(from, len(own)):min(from+limit, len(own))]}
			if from+limit < len(own) {
				body["next"] = strconv.Itoa(from + limit)
			}
			answer(200, body)
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			key := business + r.Header.Get("Idempotency-Key")
			if earlier, known := byKey[key]; known && bodies[key] != string(body) {
				answer(422, nil)
				return
			} else if known {
				w.Header().Set("Location", "/guests/"+earlier.ID)
				answer(201, earlier)
				return
			}
			var sent guest
			_ = json.Unmarshal(body, &sent)
			made := add(business, sent)
			byKey[key], bodies[key] = *made, string(body)
			w.Header().Set("Location", "/guests/"+made.ID)
			echo := *made
			if is("other Location") {
				w.Header().Set("Location", "/guests/"+all[len(all)-2].ID+"0")
			}
			if is("stores less") {
				made.Note = ""
			}
			if is("echoes") {
				made.Email = "x@example.com"
			}
			answer(201, echo)
		case i < 0:
			foreign := slices.ContainsFunc(all, func(g *guest) bool { return g.ID == id && g.of != "" })
			switch {
			case is("403") && foreign:
				answer(403, object{"code": "NOT_YOURS"})
			case is("code") && foreign:
				answer(404, object{"code": "NOT_YOURS"})
			default:
				answer(404, object{"code": "NOT_FOUND"})
			}
		case r.Method == http.MethodGet:
			found := *all[i]
			if is("no time after a change") && found.version > 1 {
				found.Created = ""
			}
			answer(200, &found)
		case r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != strconv.Quote(strconv.Itoa(all[i].version)):
			answer(412, nil)
		case r.Method == http.MethodPut:
			old := *all[i]
			sent := guest{}
			if is("merges") {
				sent = old
			}
			_ = json.NewDecoder(r.Body).Decode(&sent)
			sent.ID, sent.of, sent.Created, sent.version = old.ID, old.of, old.Created, old.version+1
			if is("defaults") {
				sent.Note = cmp.Or(sent.Note, "by the window")
			}
			if is("keeps number") {
				sent.Number = cmp.Or(sent.Number, old.Number)
			}
			*all[i] = sent
			if is("old PUT") {
				answer(200, old)
				return
			}
			answer(200, all[i])
		case r.Method == http.MethodPatch:
			old := *all[i]
			_ = json.NewDecoder(r.Body).Decode(all[i])
			all[i].version++
			if is("PATCH loses") {
				all[i].Email = "none@example.com"
			}
			if is("old PATCH") {
				answer(200, old)
				return
			}
			answer(200, all[i])
		default:
			all[i].of = ""
			answer(204, nil)
		}
	})
}

// Each way of the service has its finding, or none.
func TestOneRunNamesWhatIsWrongWithGuests(t *testing.T) {
	t.Parallel()
	const none = " 0 faults, 0 hints"
	for way, want := range map[string]string{
		"":               none,
		"exact":          none, // filters by texts
		"folded":         none,
		"words":          none,
		"name or email":  none, // is what a name is searched in
		"cursor alone":   none, // is accepted, without the filter
		"pages as total": none,
		"defaults":       none, // of members that a PUT does not name
		"keeps number":   none,

		"name ignored":           "fault filter: listGuests: GET /guests?name={name} as A\n  expected records with the text of the parameter name\n  got      all records",
		"email ignored":          "fault filter: listGuests: GET /guests?email={email} as A",
		"name lost":              "fault filter: listGuests: GET /guests?name={name} as A\n  expected all records with the value",
		"foreign by email":       "fault isolation: listGuests: GET /guests?email={email} as B",
		"later pages":            "fault paging: listGuests: GET /guests?",
		"later cursors":          "fault cursor: listVisits: GET /visits?cursor={cursor}&",
		"page total":             "fault paging: listGuests: GET /guests?page=3&size=2 as A\n  expected the number of all records as total",
		"total of all":           "fault paging: listGuests: GET /guests?page=3&size=2 as A\n  expected the number of all records as total_items",
		"403":                    "fault isolation: getGuest: GET /guests/{guest} as B\n  expected the same response as for an ID that does not exist\n  got      another one, with status 403",
		"code":                   "fault isolation: getGuest: GET /guests/{guest} as B\n  expected the same response as for an ID that does not exist\n  got      another one, with status 404",
		"other Location":         "fault create: getGuest: GET /guests/{guest} as A\n  expected the record that was created",
		"stores less":            "hint stored: getGuest: GET /guests/{guest} as A\n  at       /note\n  expected what addGuest sent\n  got      nothing",
		"echoes":                 "hint stored: getGuest: GET /guests/{guest} as A\n  at       /email\n  expected what addGuest sent",
		"merges":                 "fault change: getGuest: GET /guests/{guest} as A\n  at       /tag\n  expected no value",
		"no time after a change": "fault schema: getGuest: GET /guests/{guest} as A\n  at       /created",
		"old PUT":                "hint stored: replaceGuest: PUT /guests/{guest} as A",
		"old PATCH":              "hint stored: changeGuest: PATCH /guests/{guest} as A",
		"PATCH loses":            "hint stored: getGuest: GET /guests/{guest} as A\n  at       /email",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			document := strings.Replace(guestsDocument, "TOTAL", guestsTotal(way), 1)
			for _, printed := range conformOf(t, document, conform.Options{Write: true}, func() http.Handler { return guests(way) }) {
				require.Contains(t, printed, want)
				require.NotContains(t, printed, "@17.example")
			}
		})
	}
}
