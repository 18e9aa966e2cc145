package conform_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// pause is the time between two requests of conform where the service is slow, unless they race.
const pause = 100 * time.Millisecond

// racksDocument is an API with headers that have a form, a filter with a default, a list below records, and a download.
const racksDocument = `
openapi: 3.1.0
info: {title: Racks, version: "1"}
x-gatehouse-tenant: request
paths:
  /racks:
    get:
      operationId: listRacks
      parameters:
        - {name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}
        - {name: size, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}
        - {name: room_id, in: query, schema: {type: integer}}
        - {name: since, in: query, schema: {type: string, format: date}}
        - {name: state, in: query, schema: {type: array, maxItems: 2, items: {type: string, enum: [used, new, broken]}, default: [used, broken]}}
      responses:
        "200":
          description: Racks.
          x-gatehouse-records: {in: racks, at_most: size}
          x-gatehouse-page: [{request: page, response: /page}]
          content:
            application/json:
              schema:
                type: object
                required: [racks, page]
                properties:
                  racks: {type: array, items: {$ref: "#/components/schemas/Rack"}}
                  page: {type: integer}
    post:
      operationId: addRack
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string, pattern: "^[0-9a-z]{8,20}$"}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Rack"}, example: {name: oak, state: STATE, room_id: 1}}}}
      responses: {"201": {description: The rack., content: {application/json: {schema: {$ref: "#/components/schemas/Rack"}}}}, "422": {description: The key came with another body.}}
  /rooms:
    get:
      operationId: listRooms
      responses: {"200": {description: Rooms., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Room"}}}}}}
  /rooms/{room_id}:
    get:
      operationId: getRoom
      parameters: [{name: room_id, in: path, required: true, schema: {type: integer}}]
      responses: {"200": {description: A room., content: {application/json: {schema: {$ref: "#/components/schemas/Room"}}}}}
  /racks/{rack}:
    parameters: [{name: rack, in: path, required: true, schema: {type: string, pattern: "^[0-9]{3,9}$"}}]
    get:
      operationId: getRack
      parameters: [{name: If-None-Match, in: header, schema: {type: string}}]
      responses:
        "200": {description: The rack., headers: {ETag: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/Rack"}}}}
    patch:
      operationId: changeRack
      parameters: [{name: If-Match, in: header, required: true, schema: {type: string, pattern: '^"[0-9]+"$'}}]
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {type: object, properties: {name: {type: string}, room_id: {type: integer}}}, example: {name: ash, room_id: 1}}}}
      responses: {"204": {description: It is changed.}}
    delete:
      operationId: removeRack
      responses: {"204": {description: It is gone.}}
  /racks/{rack}/retire:
    post:
      operationId: retireRack
      parameters: [{name: rack, in: path, required: true, schema: {type: string, pattern: "^[0-9]{3,9}$"}}]
      responses: {"204": {description: It is retired.}}
  /racks/{rack}/note:
    parameters: [{name: rack, in: path, required: true, schema: {type: string, pattern: "^[0-9]{3,9}$"}}]
    get:
      operationId: getNote
      responses: {"200": {description: The note., content: {application/json: {schema: {type: object, properties: {text: {type: string}}}}}}, "404": {description: None.}}
    delete:
      operationId: removeNote
      responses: {"204": {description: There is none.}}
  /racks/{rack}/slots:
    get:
      operationId: listSlots
      parameters:
        - {name: rack, in: path, required: true, schema: {type: string, pattern: "^[0-9]{3,9}$"}}
        - {name: cursor, in: query, schema: {type: string}}
        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}
      responses:
        "200":
          description: Slots.
          x-gatehouse-records: {in: slots, at_most: limit}
          x-gatehouse-page: [{cursor: cursor, response: /next}]
          content:
            application/json:
              schema:
                type: object
                required: [slots, next]
                properties:
                  slots: {type: array, items: {type: object, required: [id, rack], properties: {id: {type: string}, rack: {type: string}}}}
                  next: {type: [string, "null"]}
        "422": {description: The cursor is unknown.}
  /racks/{rack}/label:
    get:
      operationId: getLabel
      x-gatehouse-unchecked: [application/pdf]
      parameters: [{name: rack, in: path, required: true, schema: {type: string, pattern: "^[0-9]{3,9}$"}}]
      responses: {"200": {description: The label., content: {application/pdf: {}}}}
components:
  schemas:
    Room: {type: object, required: [id], properties: {id: {type: integer}}}
    Rack:
      type: object
      required: [id, name, state]
      properties: {id: {type: string, readOnly: true}, name: {type: string}, state: {type: string, enum: [used, new, broken]}, room_id: {type: [integer, "null"]}}
`

// rackBody is the body of addRack in the document.
const rackBody = `      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Rack"}, example: {name: oak, state: STATE, room_id: 1}}}}
`

// rackSize is the parameter of the document with the size of a page of racks.
const rackSize = "        - {name: size, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}\n"

// rackGet is the GET of a rack in the document.
const rackGet = `    get:
      operationId: getRack
      parameters: [{name: If-None-Match, in: header, schema: {type: string}}]
      responses:
        "200": {description: The rack., headers: {ETag: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/Rack"}}}}
`

type rack struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	State   string `json:"state"`
	Room    int    `json:"room_id"`
	owner   string
	version int
	noted   bool // it has a note
}

// racks is a service of the document. What it is called with names the way in which it differs from others.
func racks(way string) http.Handler {
	is := func(ways ...string) bool { return slices.Contains(ways, way) }
	var mu sync.Mutex
	var all []*rack
	rooms := map[string][]int{"1001": {11, 12}, "1002": {21, 22}}
	add := func(owner, name, state string, room int) *rack {
		r := &rack{ID: fmt.Sprint(100 + len(all)), Name: name, State: state, Room: room, owner: owner, version: 1, noted: len(all)%4 < 2}
		if is("everything", "template") {
			r.ID = uuid.NewString()
		}
		if is("ids") {
			r.ID = strconv.Itoa(1 + len(all))
		}
		all = append(all, r)
		return r
	}
	for i := range 11 {
		owner := fmt.Sprint(1001 + i%2)
		add(owner, fmt.Sprint("rack ", i), "used", rooms[owner][i%4/2])
	}
	answers, bodies := map[string]string{}, map[string]string{} // by business and key
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(w http.ResponseWriter, r *http.Request, owner string, found *rack) (status int, body any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			owner := r.Header.Get("X-Business-Id")
			w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
			status, body := http.StatusForbidden, any(nil)
			i := slices.IndexFunc(all, func(o *rack) bool { return o != nil && o.ID == r.PathValue("rack") })
			switch _, err := strconv.Atoi(owner); {
			case owner != "" && err != nil: // the column has numbers
				status = http.StatusInternalServerError
			case owner != "1001" && owner != "1002":
			case r.PathValue("rack") == "":
				status, body = serve(w, r, owner, nil)
			case i < 0 || all[i].version == 0 || all[i].owner != owner && !is("everything") && !(is("label", "retire") && strings.HasSuffix(r.URL.Path, "/"+way)):
				status = http.StatusNotFound
				switch {
				case is("gone") && r.Method == http.MethodDelete:
					status = http.StatusNoContent
				case is("done") && i >= 0 && r.Method == http.MethodDelete:
					all[i] = nil
				}
			default:
				status, body = serve(w, r, owner, all[i])
			}
			if w.Header().Get("Content-Type") == "" {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(status)
			switch text, ready := body.(string); {
			case ready:
				_, _ = w.Write([]byte(text))
			case status != http.StatusNoContent && status != http.StatusNotModified && body != nil:
				_ = json.NewEncoder(w).Encode(body)
			}
		})
	}
	handle("GET /racks", func(_ http.ResponseWriter, r *http.Request, owner string, _ *rack) (int, any) {
		page, _ := strconv.Atoi(r.FormValue("page"))
		size, _ := strconv.Atoi(cmp.Or(r.FormValue("size"), "4"))
		if is("clamped") {
			size = min(size, 4)
		}
		own := []*rack{}
		for _, one := range all {
			room := fmt.Sprint(one != nil && r.FormValue("room_id") == fmt.Sprint(one.Room)) == "true"
			owned := one != nil && (one.owner == owner || room && is("filter") || is("everything") || is("since") && r.FormValue("since") != "" || one == all[0] && is("template"))
			if owned && (room || r.FormValue("room_id") == "") && slices.Contains(r.URL.Query()["state"], one.State) {
				own = append(own, one)
				if is("join") {
					own = append(own, one)
				}
			}
		}
		from := min((page-1)*size, len(own))
		return 200, map[string]any{"racks": own[from:min(from+size, len(own))], "page": page}
	})
	handle("GET /rooms", func(_ http.ResponseWriter, _ *http.Request, owner string, _ *rack) (int, any) {
		own := []any{}
		for _, id := range rooms[owner] {
			own = append(own, map[string]int{"id": id})
		}
		return 200, own
	})
	handle("GET /rooms/{room}", func(_ http.ResponseWriter, r *http.Request, owner string, _ *rack) (int, any) {
		id, _ := strconv.Atoi(r.PathValue("room"))
		if !slices.Contains(rooms[owner], id) {
			return 404, nil
		}
		return 200, map[string]int{"id": id}
	})
	handle("POST /racks", func(_ http.ResponseWriter, r *http.Request, owner string, _ *rack) (int, any) {
		key := owner + " " + r.Header.Get("Idempotency-Key")
		if is("key") {
			_, key, _ = strings.Cut(key, " ")
		}
		body, _ := io.ReadAll(r.Body)
		if earlier, known := answers[key]; known && key != "" && !is("ignored") {
			if sent := bodies[key]; sent != string(body) && !is("key") {
				return 422, nil
			}
			return 201, earlier
		}
		if is("race") {
			mu.Unlock()
			select {
			case <-time.After(pause / 2):
			case <-r.Context().Done():
			}
			mu.Lock()
		}
		sent := rack{Name: "oak", State: "used", Room: rooms[owner][0]}
		_ = json.Unmarshal(body, &sent)
		if !slices.Contains(rooms[owner], sent.Room) && !is("room") {
			return 400, nil
		}
		made := add(owner, sent.Name, sent.State, sent.Room)
		bodies[key] = string(body)
		answers[key] = fmt.Sprintf(`{"state":%q,"name":%q,"room_id":%d,"id":%q}`, made.State, made.Name, made.Room, made.ID) // in another order
		return 201, made
	})
	handle("GET /racks/{rack}", func(w http.ResponseWriter, r *http.Request, _ string, found *rack) (int, any) {
		etag := strconv.Quote(strconv.Itoa(found.version))
		if is("etag") {
			etag = `"v` + etag[1:]
		}
		w.Header().Set("ETag", etag)
		if match := r.Header.Get("If-None-Match"); match == etag || match != "" && is("304") {
			return 304, nil
		}
		return 200, found
	})
	handle("PATCH /racks/{rack}", func(_ http.ResponseWriter, r *http.Request, _ string, found *rack) (int, any) {
		wrong := r.Header.Get("If-Match") != strconv.Quote(strconv.Itoa(found.version))
		if wrong && !is("412") {
			return 412, nil
		}
		changed := *found
		_ = json.NewDecoder(r.Body).Decode(&changed)
		if !slices.Contains(rooms[found.owner], changed.Room) && !is("other room") {
			return 400, nil
		}
		*found = changed
		if found.version++; wrong {
			return 412, nil
		}
		return 204, nil
	})
	handle("DELETE /racks/{rack}", func(_ http.ResponseWriter, _ *http.Request, owner string, found *rack) (int, any) {
		if status, err := strconv.Atoi(strings.TrimPrefix(way, "delete ")); err == nil {
			return status, nil
		}
		for i := range all {
			switch {
			case all[i] == found && is("listed"):
				found.version = 0
			case all[i] == found, all[i] != nil && all[i].owner == owner && is("all"):
				all[i] = nil
			}
		}
		return 204, nil
	})
	handle("POST /racks/{rack}/retire", func(_ http.ResponseWriter, _ *http.Request, _ string, found *rack) (int, any) {
		if slices.Index(all, found) < 11 {
			panic("conform changes a record that it did not create")
		}
		found.State = "broken"
		return 204, nil
	})
	handle("GET /racks/{rack}/note", func(_ http.ResponseWriter, _ *http.Request, _ string, found *rack) (int, any) {
		if !found.noted {
			return 404, nil
		}
		return 200, map[string]string{"text": "of " + found.ID}
	})
	handle("DELETE /racks/{rack}/note", func(_ http.ResponseWriter, _ *http.Request, _ string, found *rack) (int, any) {
		found.noted = false
		return 204, nil
	})
	handle("GET /racks/{rack}/slots", func(_ http.ResponseWriter, r *http.Request, _ string, found *rack) (int, any) {
		const slots = 24
		from, _ := strconv.Atoi(strings.TrimPrefix(r.FormValue("cursor"), "c"))
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		if is("short") {
			limit = min(limit, 2)
		}
		limit = cmp.Or(limit, 5)
		if is("no slots") {
			return 404, nil
		}
		if is("cursor") && from > 0 {
			return 422, nil
		}
		own := []any{}
		for i := from; i < min(from+limit, slots); i++ {
			of := found.ID
			if is("parent") {
				of = "100"
			}
			own = append(own, map[string]any{"id": fmt.Sprint("s", i), "rack": of})
		}
		var next any
		if from+limit < slots {
			next = fmt.Sprint("c", from+limit)
		}
		return 200, map[string]any{"slots": own, "next": next}
	})
	handle("GET /racks/{rack}/label", func(w http.ResponseWriter, _ *http.Request, _ string, _ *rack) (int, any) {
		w.Header().Set("Content-Type", "application/pdf")
		return 200, "%PDF"
	})
	return mux
}

func TestConformTellsFaultsFromWhatServicesMayDo(t *testing.T) {
	t.Parallel()
	uuids := []string{`pattern: "^[0-9]{3,9}$"`, "format: uuid"}
	for name, c := range map[string]struct {
		way, state string
		change     []string // texts of the document, each followed by what is there instead
		want       []string // in what is printed; none: there is no fault
		slashes    bool     // at the end of all paths
		unsized    bool     // slots have no parameter with the size of a page
		rate       float64
		limits     bool // the service refuses every eleventh request at first
	}{
		"a usual service":                               {},
		"204 for a DELETE of what does not exist":       {way: "gone"},
		"204 for a DELETE of what cannot be read":       {way: "gone", change: []string{rackGet, ""}},
		"202 for a DELETE that is made later":           {way: "delete 202", change: []string{`"204": {description: It is gone.}`, `"202": {description: It will be gone.}`}},
		"pages without a size":                          {change: []string{rackSize, "", ", at_most: size", ""}},
		"409 for a DELETE of what is in use":            {way: "delete 409"},
		"pages that are shorter than asked for":         {way: "short"},
		"a filter whose default leaves out the example": {state: "new"},
		"a service that limits requests":                {limits: true},
		"a creation without a body":                     {change: []string{rackBody, ""}},

		"paths that end with a slash":                      {slashes: true},
		"a DELETE that is refused, and made, slashes":      {way: "done", slashes: true, want: []string{"fault isolation: removeRack: DELETE /racks/{rack}/ as B"}},
		"404 for a DELETE of one's own record":             {way: "delete 404", want: []string{"fault delete: removeRack: DELETE /racks/{rack} as A\n  expected success, because the business created the record and can read it\n  got      status 404"}},
		"403 for a DELETE of one's own record":             {way: "delete 403", want: []string{"fault delete: removeRack: DELETE /racks/{rack} as A"}},
		"a DELETE that is refused, and made":               {way: "done", want: []string{"fault isolation: removeRack: DELETE /racks/{rack} as B\n  expected a status from 400 for a record of A, and nothing else\n  got      status 404, and the change was made"}},
		"a DELETE of what has no GET, refused, and made":   {way: "done", change: []string{rackGet, ""}, want: []string{"fault isolation: removeRack: DELETE /racks/{rack} as B"}},
		"a PATCH that is refused, and made":                {way: "412", want: []string{"fault precondition: changeRack: PATCH /racks/{rack} as A\n  expected status 412 for an If-Match that the record had before it was changed\n  got      status 412, and the change was made"}},
		"a DELETE of all records":                          {way: "all", want: []string{"fault delete: listRacks", "all records but the one that was deleted"}},
		"a list with fewer records than asked for":         {way: "clamped", want: []string{"fault paging: listRacks", "no more records than the whole list has"}},
		"a list that has each record twice":                {way: "join", want: []string{"fault paging: listRacks: GET /racks?size=50 as A\n  at       /racks/1\n  expected each record once"}},
		"cursors without a size":                           {unsized: true},
		"a cursor without a size that is refused":          {unsized: true, way: "cursor", want: []string{"fault cursor: listSlots", "records for the cursor that the service sent"}},
		"a cursor that is refused":                         {way: "cursor", want: []string{"fault cursor: listSlots", "records for the cursor that the service sent"}},
		"a list that is not there below its parent":        {way: "no slots", want: []string{"fault record: listSlots"}},
		"records of another parent":                        {way: "parent", want: []string{"fault record: listSlots", "at       /slots/0/rack"}},
		"an action by any business":                        {way: "retire", want: []string{"fault isolation: retireRack: POST /racks/{rack}/retire as B"}},
		"a download of any business":                       {way: "label", want: []string{"fault isolation: getLabel"}},
		"a filter by an ID of another business":            {way: "filter", want: []string{"fault isolation: listRacks: GET /racks?room_id={room_id} as B"}},
		"a filter that leaves out the business":            {way: "since", want: []string{"fault isolation: listRacks: GET /racks?since=2024-02-29&size=50 as A\n  at       /racks/1\n  expected records of A"}},
		"a record of another business named in a creation": {way: "room", want: []string{"fault isolation: addRack: POST /racks as B", "because a record of A is named"}},
		"a record of another business named in a change":   {way: "other room", want: []string{"fault isolation: changeRack: PATCH /racks/{rack} as A", "because a record of B is named"}},
		"304 for any ETag":                                 {way: "304", want: []string{"fault conditional: getRack", "an ETag that it never had"}},
		"an ETag that cannot be sent as If-Match":          {way: "etag", want: []string{"fault header: getRack: GET /racks/{rack} as A\n  expected a version that the definition allows as If-Match"}},
		"an Idempotency-Key of another business":           {way: "key", want: []string{"fault isolation: addRack: POST /racks as B", "although A sent the same Idempotency-Key"}},
		"requests with one Idempotency-Key at a time":      {way: "race", rate: float64(time.Second / pause), want: []string{"fault idempotency: addRack", "one record for 5 requests at a time"}},
		"IDs that the paths of records cannot have":        {way: "ids", want: []string{"fault record: listRacks", "IDs that the paths of records can have"}},
		"a record that is listed after it was deleted":     {way: "listed", want: []string{"fault delete: listRacks", "a list without the record that was deleted"}},
		"one record of another business, with UUIDs":       {way: "template", change: uuids, want: []string{"fault isolation: listRacks"}},
		"records of any business, with UUIDs": {way: "everything", change: uuids, want: []string{
			"fault isolation: listRacks", "fault isolation: getRack", "fault isolation: changeRack", "fault isolation: removeRack",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.state == "" {
				c.state = "used"
			}
			text := strings.NewReplacer(append(c.change, "STATE", c.state)...).Replace(racksDocument)
			if c.unsized {
				text = strings.Replace(strings.Replace(text, ", at_most: limit", "", 1), "        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}\n", "", 1)
			}
			if c.slashes {
				text = regexp.MustCompile(`(?m)^  (/.*):$`).ReplaceAllString(text, "  $1/:")
			}
			d, err := definition.Load(definition.File{Name: "racks.yaml", Text: []byte(text)}, definition.Options{})
			require.NoError(t, err)
			seeds := uint64(5)
			if c.rate > 0 || c.limits {
				seeds = 1
			}
			for seed := range seeds {
				handler := racks(c.way)
				var asked atomic.Int32
				service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.limits && asked.Add(1)%11 == 0 {
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(http.StatusTooManyRequests)
						return
					}
					if path, cut := strings.CutSuffix(r.URL.Path, "/"); cut == c.slashes {
						r.URL.Path = path
						handler.ServeHTTP(w, r)
						return
					}
					http.NotFound(w, r)
				}))
				report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "1001", B: "1002", Write: true, Seed: seed, Rate: c.rate})
				service.Close()
				require.NoError(t, err)
				var printed strings.Builder
				require.NoError(t, report.Print(&printed))
				for _, want := range c.want {
					require.Contains(t, printed.String(), want)
				}
				require.Equal(t, c.limits, strings.Contains(printed.String(), "listRacks: requests at the same time: the service limits them, so some were sent later"))
				require.Equal(t, c.want == nil, len(report.Faults) == 0, printed.String())
			}
		})
	}
}

func TestRecordsAreCountedWithoutAnIDInTheResponse(t *testing.T) {
	t.Parallel()
	const response = `"201": {description: The rack., content: {application/json: {schema: {$ref: "#/components/schemas/Rack"}}}}`
	text := strings.Replace(racksDocument, response, `"201": {description: It is made., headers: {Location: {schema: {type: string}}}}`, 1)
	for name, c := range map[string]struct {
		state, way   string
		located      bool // the response has a Location
		want, absent string
	}{
		"a Location": {located: true, absent: "skipped changeRack"},
		"a Location, and an Idempotency-Key ignored": {way: "ignored", located: true, want: "fault idempotency: addRack: POST /racks as A\n  expected one record for 5 requests at a time"},
		"no Location": {want: "skipped addRack: its response has no ID"},
		"no Location, and an Idempotency-Key that is ignored": {way: "ignored", want: "fault idempotency: listRacks: GET /racks?size=50 as A\n  expected one new record for each Idempotency-Key\n  got      6 more"},
		"a Location of what the filter's default leaves out":  {state: "new", located: true, absent: "skipped changeRack"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := definition.Load(definition.File{Name: "racks.yaml", Text: []byte(strings.Replace(text, "STATE", cmp.Or(c.state, "used"), 1))}, definition.Options{})
			require.NoError(t, err)
			handler := racks(c.way)
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					handler.ServeHTTP(w, r)
					return
				}
				recorded := httptest.NewRecorder()
				handler.ServeHTTP(recorded, r)
				var made rack
				_ = json.Unmarshal(recorded.Body.Bytes(), &made)
				w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
				if c.located && made.ID != "" {
					w.Header().Set("Location", "/racks/"+made.ID)
				}
				w.WriteHeader(recorded.Code)
			}))
			t.Cleanup(service.Close)
			report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "1001", B: "1002", Write: true})
			require.NoError(t, err)
			var printed strings.Builder
			require.NoError(t, report.Print(&printed))
			require.Contains(t, printed.String(), c.want)
			require.Equal(t, c.way == "", len(report.Faults) == 0, printed.String())
			if c.absent != "" {
				require.NotContains(t, printed.String(), c.absent)
			}
		})
	}
}

// payments is a service that has no list of what it creates. Requests come at a time if they come within the pause.
func payments(way string) http.HandlerFunc {
	var mu sync.Mutex
	made, sent, n := map[string]string{}, map[string]string{}, 0 // by key
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		key := r.Header.Get("X-Business-Id") + r.Header.Get("Idempotency-Key")
		body, _ := io.ReadAll(r.Body)
		id, known := made[key]
		if known && string(body) != sent[key] {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		if way == "race" && !known {
			mu.Unlock()
			select {
			case <-time.After(pause / 2):
			case <-r.Context().Done():
			}
			mu.Lock()
		}
		switch {
		case known:
		case r.Header.Get("X-Business-Id") != "1001", way == "unique" && n > 0:
			w.WriteHeader(http.StatusConflict)
			return
		default:
			n++
			id = strconv.Itoa(n)
			made[key], sent[key] = id, string(body)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"id":%q}`, id)
	}
}

func TestWhatNoListHasIsCreatedOnce(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "payments.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: Payments, version: "1"}
x-gatehouse-tenant: request
paths:
  /payments:
    post:
      operationId: pay
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {amount: {type: string}}}}}}
      responses: {"201": {description: It is made., content: {application/json: {schema: {type: object, properties: {id: {type: string}}}}}}, "422": {description: It is refused.}}
`)}, definition.Options{})
	require.NoError(t, err)
	for way, want := range map[string]string{
		"":       "0 faults",
		"race":   "fault idempotency: pay: POST /payments as A\n  expected one record for 5 requests at a time with one Idempotency-Key",
		"unique": "skipped pay: Idempotency-Key: none of the requests at a time was accepted",
	} {
		service := httptest.NewServer(payments(way))
		report, err := conform.Run(t.Context(), conform.Options{Definition: d, URL: service.URL, A: "1001", B: "1002", Write: true})
		service.Close()
		require.NoError(t, err)
		var printed strings.Builder
		require.NoError(t, report.Print(&printed))
		require.Contains(t, printed.String(), want)
		require.Equal(t, way == "race", len(report.Faults) > 0, printed.String())
	}
}
