package conform_test

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// small serves paths with one function: a request gets its status and, unless body is nil, a body.
func small(serve func(r *http.Request, business string) (status int, body any)) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		w.Header().Set("Content-Type", "application/json")
		status, body := serve(r, r.Header.Get("X-Business-Id"))
		if tagged, ok := body.(*item); ok {
			w.Header().Set("ETag", tagged.etag())
		}
		if w.WriteHeader(status); body != nil {
			_ = json.NewEncoder(w).Encode(body)
		}
	})
}

// object is a JSON object.
type object map[string]any

// conformOf tests services of an API with the businesses 17 and 18, one for each of a few seeds, and returns what is printed. paths is what the
// document has from there on.
func conformOf(t *testing.T, paths string, o conform.Options, service func() http.Handler) (all []string) {
	t.Helper()
	text := "openapi: 3.1.0\ninfo: {title: Small, version: \"1\"}\n" + paths
	d, err := definition.Load(definition.File{Name: "small.yaml", Text: []byte(text)}, definition.Options{})
	require.NoError(t, err)
	o.Definition, o.A, o.B = d, cmp.Or(o.A, "17"), cmp.Or(o.B, "18")
	for o.Seed = range 10 {
		server := httptest.NewServer(service())
		o.URL = server.URL
		report, err := conform.Run(t.Context(), o)
		server.Close()
		require.NoError(t, err)
		var printed strings.Builder
		require.NoError(t, report.Print(&printed))
		all = append(all, printed.String())
	}
	return all
}

// A cache with the responses of two keys sends the tags of both, and takes a 304 for the response with its tag.
func TestBusinessesHaveOneTagForOneContentOnly(t *testing.T) {
	t.Parallel()
	const (
		document = `x-gatehouse-tenant: business_id
paths:
  PATH:
    get:
      operationId: getNotes
      parameters:
        - {name: If-None-Match, in: header, schema: {type: string}}
        - {name: business_id, in: path, required: true, schema: {type: string}, example: "17"}
      responses: {"200": {description: Notes., headers: {ETag: {schema: {type: string}}}, content: {CONTENT}}}
`
		note     = "{type: object, properties: {business_id: {type: string, x-gatehouse-internal: true}, text: {type: string}}}"
		settings = "application/json: {schema: " + note + "}"
		list     = "application/json: {schema: {type: array, items: " + note + "}}"
		csv      = "text/csv: {}"
		fault    = "fault conditional: getNotes: GET /notes as B\n  expected another ETag than A's, because the response is another\n  got      the same one"
	)
	ofBusiness := func(business string) string { return "of " + business }
	same := func(string) string { return "" }
	for name, c := range map[string]struct {
		path, content string
		text          func(business string) string
		tag           string // BUSINESS stands for the one that asks
		want          string
	}{
		"a list, and a version":                 {"/notes", list, ofBusiness, `"3"`, fault},
		"a list, and a weak version":            {"/notes", list, ofBusiness, `W/"3"`, fault},
		"settings, and a version":               {"/notes", settings, ofBusiness, `"3"`, fault},
		"a file, and a version":                 {"/notes", csv, ofBusiness, `"3"`, fault},
		"a list, and the business in the tag":   {"/notes", list, ofBusiness, `"BUSINESS-3"`, " 0 faults"},
		"the same settings for callers":         {"/notes", settings, same, `"3"`, " 0 faults"},
		"a list with the business in its path":  {"/firms/{business_id}/notes", list, ofBusiness, `"3"`, " 0 faults"},
		"settings with the business in the tag": {"/notes", settings, ofBusiness, `"BUSINESS-3"`, " 0 faults"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReplacer("PATH", c.path, "CONTENT", c.content).Replace(document)
			if !strings.Contains(c.path, "{") {
				text = strings.Replace(text, `        - {name: business_id, in: path, required: true, schema: {type: string}, example: "17"}`+"\n", "", 1)
			}
			if c.content == csv {
				text = strings.Replace(strings.Replace(text, "x-gatehouse-tenant: business_id", "x-gatehouse-tenant: request", 1), "operationId", "x-gatehouse-unchecked: [text/csv]\n      operationId", 1)
			}
			for _, printed := range conformOf(t, text, conform.Options{}, func() http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					business := r.Header.Get("X-Business-Id")
					if business != "17" && business != "18" {
						w.WriteHeader(http.StatusForbidden)
						return
					}
					tag := strings.Replace(c.tag, "BUSINESS", business, 1)
					if w.Header().Set("ETag", tag); r.Header.Get("If-None-Match") == tag {
						w.WriteHeader(http.StatusNotModified)
						return
					}
					if c.content == csv {
						w.Header().Set("Content-Type", "text/csv")
						_, _ = io.WriteString(w, c.text(business))
						return
					}
					w.Header().Set("Content-Type", "application/json")
					body := any(object{"business_id": business, "text": c.text(business)})
					if c.content == list {
						body = []any{body}
					}
					_ = json.NewEncoder(w).Encode(body)
				})
			}) {
				require.Contains(t, printed, c.want)
				require.Equal(t, c.want == fault, strings.Contains(printed, " 1 fault"), printed)
			}
		})
	}
}

func TestAParameterThatNamesTheBusiness(t *testing.T) {
	t.Parallel()
	const (
		response = `responses: {"200": {description: Orders., content: {application/json: {schema: {type: array, items: {type: object, required: [id, business_id], properties: {id: {type: string}, business_id: {type: string}}}}}}}}`
		optional = "        - {name: business_id, in: query, schema: {type: string}}\n"
		required = `        - {name: business_id, in: query, required: true, schema: {type: string}, example: "17"}` + "\n"
		below    = `        - {name: business_id, in: path, required: true, schema: {type: string}, example: "17"}` + "\n"
		accounts = `
  /accounts:
    get:
      operationId: listAccounts
      responses: {"200": {description: Accounts., content: {application/json: {schema: {type: array, items: {type: object, required: [id, business_id], properties: {id: {type: string}, business_id: {type: string}}}}}}}}`
	)
	for name, c := range map[string]struct{ before, path, parameter string }{
		"in an optional query":         {"", "/orders", optional},
		"in a required query":          {"", "/orders", required},
		"in a path":                    {"", "/accounts/{business_id}/orders", below},
		"in a path, with a list of it": {accounts, "/accounts/{business_id}/orders", below},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paths := "x-gatehouse-tenant: business_id\npaths:" + c.before + "\n  " + c.path + ":\n    get:\n      operationId: listOrders\n      parameters:\n" + c.parameter + "      " + response
			for _, printed := range conformOf(t, paths, conform.Options{}, func() http.Handler {
				return small(func(r *http.Request, business string) (int, any) {
					switch {
					case business != "17" && business != "18":
						return http.StatusForbidden, nil
					case r.URL.Path == "/accounts":
						return http.StatusOK, []any{object{"id": business, "business_id": business}}
					}
					return http.StatusOK, []any{object{"id": "o-" + business, "business_id": business}}
				})
			}) {
				require.Contains(t, printed, " 0 faults")
			}
		})
	}
}

// itemsDocument is an API with a list of records that name no business. PARAMETERS and RECORDS are those of the list.
const itemsDocument = `x-gatehouse-tenant: request
paths:
  /items:
    get:
      operationId: listItems
      parameters: [PARAMETERS]
      responses:
        "200":
          description: Items.
          RECORDS
          content: {application/json: {schema: {type: object, required: [items], properties: {items: {type: array, items: {$ref: "#/components/schemas/Item"}}, next: {type: string}}}}}
    post:
      operationId: addItem
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Item"}, example: {name: oak, active: true}}}}
      responses:
        "201": {description: The item., content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}
        "422": {description: It is refused.}
  /items/{item}:
    parameters: [{name: item, in: path, required: true, schema: {type: integer}}]
    get:
      operationId: getItem
      responses: {"200": {description: The item., content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}, "404": {description: None.}}
    put:
      operationId: replaceItem
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Item"}, example: {name: ash, active: true}}}}
      responses: {"200": {description: The item., content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}}
    patch:
      operationId: changeItem
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {$ref: "#/components/schemas/Change"}, example: {name: elm}}}}
      responses: {"200": {description: The item., content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}}
    delete:
      operationId: removeItem
      responses: {"204": {description: It is gone.}}
components:
  schemas:
    Change: {type: object, properties: {name: {type: string}}}
    Item: {type: object, required: [id, name], properties: {id: {type: integer, readOnly: true}, name: {type: string}, active: {type: boolean}, deleted: {type: boolean, readOnly: true}, day: {type: string, format: utc-date-time}, time: {type: integer, readOnly: true}}}
`

// itemsOf returns the document with the parameters of its list, and what is said of its records.
func itemsOf(parameters, records string) string {
	return strings.NewReplacer("PARAMETERS", parameters, "RECORDS", records).Replace(itemsDocument)
}

type item struct {
	ID      int    `json:"id"`
	Name    string `json:"name"`
	Active  bool   `json:"active,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	Day     string `json:"day,omitempty"`
	Time    int    `json:"time,omitempty"`
	of      string
}

func (i *item) etag() string { return `W/"` + strings.ReplaceAll(i.Name, " ", "-") + `"` }

// items is a service of the document, with three items of each business. What it is called with names the ways in which it differs from a usual
// one. It fails if an item is changed that existed.
func items(t *testing.T, ways ...string) http.Handler {
	t.Helper()
	is := func(way string) bool { return slices.Contains(ways, way) }
	var all []*item
	number := func(of string) int {
		if !is("own numbers") {
			return len(all) + 1
		}
		return len(slices.DeleteFunc(slices.Clone(all), func(i *item) bool { return i.of != of })) + 1
	}
	add := func(of, name string, active bool) *item {
		all = append(all, &item{ID: number(of), Name: name, Active: active, Day: fmt.Sprintf("2000-02-%02dT00:00:00Z", max(28-len(all), 1)), of: of})
		return all[len(all)-1]
	}
	existed := 6
	if is("many") {
		existed = 20
	}
	for i := range existed {
		add([]string{"17", "18"}[i%2], fmt.Sprint("item ", i), i%4 < 2)
	}
	type answer struct {
		body string
		made *item
	}
	answers, asked := map[string]answer{}, 0
	return small(func(r *http.Request, business string) (int, any) {
		if business != "17" && business != "18" {
			return http.StatusForbidden, nil
		}
		body, _ := io.ReadAll(r.Body)
		sent := item{Active: r.Method == http.MethodPatch}
		_ = json.Unmarshal(body, &sent)
		if r.URL.Path != "/items" {
			i := slices.IndexFunc(all, func(i *item) bool { return fmt.Sprint("/items/", i.ID) == r.URL.Path && i.of == business })
			if i < 0 {
				return http.StatusNotFound, nil
			}
			found := all[i]
			if r.Method == http.MethodPut && is("weak") && (is("strict") || r.Header.Get("If-Match") != found.etag()) {
				return http.StatusPreconditionFailed, nil
			}
			if i < existed && r.Method != http.MethodGet {
				t.Errorf("%s of %s changes a record that existed", r.Method, business)
			}
			switch {
			case r.Method == http.MethodDelete && is("soft"):
				found.Deleted = true
			case r.Method == http.MethodDelete && !is("kept"):
				found.of = ""
			case r.Method == http.MethodPut && !is("idle"):
				found.Name, found.Active = sent.Name, sent.Active
			case r.Method == http.MethodPatch && !is("idle") && !is("idle PATCH"):
				found.Name, found.Active = sent.Name, found.Active && !is("replacing")
			}
			if r.Method == http.MethodDelete {
				return http.StatusNoContent, nil
			}
			return http.StatusOK, found
		}
		if r.Method == http.MethodPost {
			key := business + r.Header.Get("Idempotency-Key")
			earlier, known := answers[key]
			switch {
			case is("upsert"): // of a record that existed, on the last page
				return http.StatusCreated, all[existed-2+map[string]int{"17": 0, "18": 1}[business]]
			case !known:
				answers[key] = answer{string(body), add(business, sent.Name, sent.Active)}
				answers[key].made.Day = cmp.Or(sent.Day, answers[key].made.Day)
				if is("several") {
					add(business, sent.Name, sent.Active)
				}
			case earlier.body != string(body) && !is("any body"):
				return http.StatusUnprocessableEntity, nil
			}
			made := *answers[key].made
			if asked++; is("times") {
				made.Time = asked
			}
			return http.StatusCreated, made
		}
		own := []*item{}
		for _, i := range all {
			if i.of == business || is("leak") && i.ID == 1 {
				own = append(own, i)
			}
		}
		page, _ := strconv.Atoi(cmp.Or(r.FormValue("page"), "1"))
		size, _ := strconv.Atoi(cmp.Or(r.FormValue("limit"), "100"))
		if is("pages") {
			size = min(size, 3)
		}
		from, _ := strconv.Atoi(cmp.Or(r.FormValue("cursor"), fmt.Sprint((page-1)*size)))
		list := object{"items": own[min(from, len(own)):min(from+size, len(own))]}
		if is("cursor") && from+size < len(own) {
			list["next"] = strconv.Itoa(from + size)
		}
		return http.StatusOK, list
	})
}

func TestWritingHidesNoLeakInAList(t *testing.T) {
	t.Parallel()
	for _, write := range []bool{false, true} {
		for _, printed := range conformOf(t, itemsOf("", ""), conform.Options{Write: write}, func() http.Handler { return items(t, "leak") }) {
			require.Contains(t, printed, "fault isolation: listItems: GET /items as B\n")
		}
	}
}

func TestAListThatIsNotWhole(t *testing.T) {
	t.Parallel()
	const (
		page   = "{name: page, in: query, schema: {type: integer, minimum: 1, maximum: 100}}"
		cursor = "{name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 100, default: 20}}, {name: cursor, in: query, schema: {type: string}}"
		next   = "x-gatehouse-records: {in: items, at_most: limit}\n          x-gatehouse-page: [{cursor: cursor, response: /next}]"
	)
	for name, c := range map[string]struct{ parameters, records, ways, change, instead string }{
		"pages whose size is not known":                                    {parameters: page, ways: "pages"},
		"pages whose size is not known, own numbers":                       {parameters: page, ways: "pages,own numbers,many"},
		"pages with a cursor that are shorter than asked for":              {parameters: cursor, records: next, ways: "pages,cursor"},
		"pages with a cursor that are shorter than asked for, own numbers": {parameters: cursor, records: next, ways: "pages,cursor,own numbers,many"},
		"a creation that returns a record of the last page":                {parameters: page, ways: "pages,many,upsert"},
		"records without a GET, own numbers":                               {page, "", "pages,own numbers,many", "    get:\n      operationId: getItem\n", "    x-get:\n      operationId: getItem\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := itemsOf(c.parameters, c.records)
			if c.change != "" {
				document = strings.Replace(document, c.change, c.instead, 1)
			}
			for _, printed := range conformOf(t, document, conform.Options{Write: true}, func() http.Handler { return items(t, strings.Split(c.ways, ",")...) }) {
				require.Contains(t, printed, " 0 faults")
			}
		})
	}
}

// A service that knows businesses by their IDs only: for others, it has none of what it counts.
func TestABusinessWithoutRecordsIsNotUnknown(t *testing.T) {
	t.Parallel()
	const paths = `x-gatehouse-tenant: request
paths:
  /stats:
    get:
      operationId: getStats
      responses: {"200": {description: Counts., content: {application/json: {schema: {type: object, required: [orders], properties: {orders: {type: integer}}}}}}}
  /orders:
    get:
      operationId: listOrders
      responses: {"200": {description: Orders., content: {application/json: {schema: {type: array, items: {type: object, required: [id], properties: {id: {type: string}}}}}}}}
`
	for name, c := range map[string]struct{ a, b, never, want string }{
		"by any text":                         {want: " 0 faults"},
		"by numbers of 64 bits":               {a: "9007199254740993017", b: "9007199254740993018", want: " 0 faults"},
		"with orders of 17 for other ones":    {never: "x", want: "fault unknown-business: listOrders: GET /orders as nobody"},
		"with orders of 17 where none is one": {never: "-", want: "fault unknown-business: listOrders: GET /orders as nobody\n  expected no records for a request without X-Business-Id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, printed := range conformOf(t, paths, conform.Options{A: c.a, B: c.b}, func() http.Handler {
				return small(func(r *http.Request, business string) (int, any) {
					if _, err := strconv.ParseInt(cmp.Or(business, "0"), 10, 64); err != nil {
						return http.StatusInternalServerError, nil
					}
					known := business == cmp.Or(c.a, "17") || business == cmp.Or(c.b, "18")
					switch {
					case r.URL.Path == "/stats":
						return http.StatusOK, object{"orders": map[bool]int{true: 2}[known]}
					case known:
						return http.StatusOK, []any{object{"id": "o-1-" + business}, object{"id": "o-2-" + business}}
					case c.never == "x" && business != "", c.never == "-" && business == "":
						return http.StatusOK, []any{object{"id": "o-1-17"}}
					}
					return http.StatusOK, []any{}
				})
			}) {
				require.Contains(t, printed, c.want)
			}
		})
	}
}

// Plans are everybody's, and have UUIDs. Each business has its own usage of a plan, and subscribes to it.
func TestWhatBelongsToNobodyIsNoRecordOfA(t *testing.T) {
	t.Parallel()
	const paths = `x-gatehouse-tenant: request
paths:
  /plans:
    get:
      operationId: listPlans
      x-gatehouse-tenant: none
      responses: {"200": {description: Plans., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Plan"}}}}}}
  /plans/{plan_id}:
    parameters: [{name: plan_id, in: path, required: true, schema: {type: string, format: uuid}}]
    get:
      operationId: getPlan
      x-gatehouse-tenant: none
      responses: {"200": {description: The plan., content: {application/json: {schema: {$ref: "#/components/schemas/Plan"}}}}, "404": {description: None.}}
  /plans/{plan_id}/usage:
    parameters: [{name: plan_id, in: path, required: true, schema: {type: string, format: uuid}}]
    get:
      operationId: getUsage
      responses: {"200": {description: The usage., content: {application/json: {schema: {type: object, required: [plan_id, used], properties: {plan_id: {type: string}, used: {type: integer}}}}}}, "404": {description: None.}}
  /plans/{plan_id}/bookings:
    parameters: [{name: plan_id, in: path, required: true, schema: {type: string, format: uuid}}]
    get:
      operationId: listBookings
      responses: {"200": {description: Bookings., content: {application/json: {schema: {type: array, items: {type: object, required: [id], properties: {id: {type: string}}}}}}}}
    post:
      operationId: book
      responses: {"204": {description: It is booked.}}
  /subscriptions:
    post:
      operationId: subscribe
      requestBody: {required: true, content: {application/json: {schema: {type: object, required: [plan_id], properties: {plan_id: {type: string, format: uuid}}}}}}
      responses: {"204": {description: It is done.}, "422": {description: It is refused.}}
components:
  schemas:
    Plan: {type: object, required: [id], properties: {id: {type: string, format: uuid}}}
`
	plans := []any{object{"id": "0b9f3c52-6f7e-4a52-9c53-0a1e3dd50b11"}, object{"id": "5d0c3d16-3dd7-4b0c-8b8e-6e2a4c3f7a22"}}
	for _, printed := range conformOf(t, paths, conform.Options{Write: true}, func() http.Handler {
		return small(func(r *http.Request, _ string) (int, any) {
			_, rest, _ := strings.Cut(r.URL.Path, "/plans/")
			id, below, _ := strings.Cut(rest, "/")
			found := slices.ContainsFunc(plans, func(plan any) bool { return plan.(object)["id"] == id })
			switch {
			case r.Method == http.MethodPost:
				return http.StatusNoContent, nil
			case below == "bookings":
				return http.StatusOK, []any{}
			case r.URL.Path == "/plans":
				return http.StatusOK, plans
			case !found:
				return http.StatusNotFound, nil
			case below == "usage":
				return http.StatusOK, object{"plan_id": id, "used": 0}
			}
			return http.StatusOK, object{"id": id}
		})
	}) {
		require.Contains(t, printed, " 0 faults")
	}
}

// usersDocument is an API whose paths below a user have members with the names of their parameters.
const usersDocument = `x-gatehouse-tenant: request
paths:
  /users:
    get:
      operationId: listUsers
      parameters:
        - {name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}
        - {name: size, in: query, schema: {type: integer, minimum: 1, maximum: 2, default: 2}}
        - {name: since, in: query, schema: {type: string, format: date}}
        - {name: lat, in: query, schema: {type: number, minimum: -90, maximum: 90}}
        - {name: lng, in: query, schema: {type: number, minimum: -90, maximum: 90}}
      responses:
        "200":
          description: Users.
          x-gatehouse-records: {in: users, at_most: size}
          x-gatehouse-page: [{request: page, response: /page}]
          content: {application/json: {schema: {type: object, required: [users, page], properties: {page: {type: integer}, users: {type: array, items: {$ref: "#/components/schemas/User"}}}}}}
        "422": {description: It is refused.}
        NONE
  /users/{user_id}:
    parameters: [{name: user_id, in: path, required: true, schema: {type: string}}]
    get:
      operationId: getUser
      parameters: [{name: If-None-Match, in: header, schema: {type: string}}]
      responses: {"200": {description: The user., headers: {ETag: {schema: {type: string}}}, content: {application/json: {schema: {$ref: "#/components/schemas/User"}}}}, "404": {description: None.}}
  /users/{user_id}/followers:
    parameters: [{name: user_id, in: path, required: true, schema: {type: string}}]
    get:
      operationId: listFollowers
      responses: {"200": {description: Users., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/User"}}}}}, "404": {description: None.}}
components:
  schemas:
    User: {type: object, required: [user_id], properties: {user_id: {type: string}, views: {type: integer}}}
`

// Dates are within bounds that a document cannot say, a page past the end is not there, and each view is counted.
func TestWhatADocumentCannotSay(t *testing.T) {
	t.Parallel()
	for way, want := range map[string]string{
		"":        " 0 faults",
		"no page": "fault parameter: listUsers: GET /users?page=1000000&size=1 as A\n  expected status 200 or 422, not 404",
		"from 0":  "skipped listUsers: paging: pages may be counted from 0 or 1",
		"200":     "fault conditional: getUser: GET /users/{user_id} as A\n  expected status 304",
	} {
		document := strings.Replace(usersDocument, "NONE", map[bool]string{true: `"404": {description: No page.}`}[way != "no page"], 1)
		if way == "from 0" {
			document = strings.Replace(document, "page, in: query, schema: {type: integer, minimum: 1, default: 1}", "page, in: query, required: true, schema: {type: integer, maximum: 1}", 1)
		}
		for _, printed := range conformOf(t, document, conform.Options{}, func() http.Handler {
			views := 0
			service := small(func(r *http.Request, business string) (int, any) {
				if business != "17" && business != "18" {
					return http.StatusForbidden, nil
				}
				ids := []string{"a" + business, "b" + business, "c" + business, "d" + business, "e" + business}
				id, below, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/users"), "/"), "/")
				user := func(id string) any { return object{"user_id": id, "views": 7} }
				switch i := slices.Index(ids, id); {
				case id == "":
					page, _ := strconv.Atoi(r.FormValue("page"))
					size, _ := strconv.Atoi(r.FormValue("size"))
					if r.URL.Query().Has("since") || r.URL.Query().Has("lat") != r.URL.Query().Has("lng") {
						return http.StatusUnprocessableEntity, nil
					}
					users, from := []any{}, (page-1)*size
					if way == "from 0" {
						from = page * size
					}
					if from >= len(ids) {
						return http.StatusNotFound, nil
					}
					for _, id := range ids[from:min(from+size, len(ids))] {
						users = append(users, user(id))
					}
					return http.StatusOK, object{"users": users, "page": page}
				case i < 0:
					return http.StatusNotFound, nil
				case below == "":
					return http.StatusOK, object{"user_id": id, "views": views}
				default:
					return http.StatusOK, []any{user(ids[(i+1)%len(ids)])}
				}
			})
			var mu sync.Mutex
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if views++; way == "200" {
					views = 1
				}
				w.Header().Set("ETag", strconv.Quote(strconv.Itoa(views)))
				service.ServeHTTP(w, r)
			})
		}) {
			require.Contains(t, printed, want)
			require.Equal(t, strings.HasPrefix(want, "fault"), !strings.Contains(printed, " 0 faults"), printed)
		}
	}
}

// Each way of the service has its finding.
func TestWritesThatAServiceDoesNotMake(t *testing.T) {
	t.Parallel()
	for way, want := range map[string]string{
		"":           "changeItem: PATCH",
		"any body":   "fault idempotency: addItem: POST /items as A\n  expected status 422, or another refusal, for an Idempotency-Key that came with another body",
		"idle":       "fault change: getItem: GET /items/{item} as A\n  expected another record after replaceItem",
		"idle PATCH": "fault change: getItem: GET /items/{item} as A\n  expected another record after changeItem",
		"replacing":  "fault change: getItem: GET /items/{item} as A\n  at       /active\n  expected what was sent before, because changeItem does not name it",
	} {
		for _, printed := range conformOf(t, itemsOf("", ""), conform.Options{Write: true}, func() http.Handler { return items(t, way) }) {
			require.Equal(t, way != "", strings.Contains(printed, want), printed)
			require.Equal(t, way == "", strings.Contains(printed, " 0 faults, 0 hints"), printed)
		}
	}
}

func TestWhatWritesMayDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ways, parameters, records, want string }{
		"a creation that makes several records":       {ways: "several"},
		"a deletion that marks the record":            {ways: "soft"},
		"a repeated response with the time":           {ways: "times"},
		"an order by what is sent":                    {"pages,many", "{name: page, in: query, schema: {type: integer, minimum: 1}}", "x-gatehouse-records: {in: items, order: [day]}", ""},
		"a weak ETag with which the service works":    {ways: "weak", want: "hint weak-etag: getItem: GET /items/{item} as A"},
		"a weak ETag with which the service does not": {ways: "weak,strict", want: "fault precondition: replaceItem: PUT /items/{item} as A"},
		"a deletion that changes nothing":             {ways: "kept", want: "fault delete: getItem: GET /items/{item} as A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := strings.Replace(itemsOf(c.parameters, c.records), "oak, active: true", map[bool]string{true: `oak, active: true, day: "1999-01-01T00:00:00Z"`, false: "oak, active: true"}[c.records != ""], 1)
			if strings.HasPrefix(c.ways, "weak") {
				document = strings.NewReplacer(`"200": {description: The item.,`, `"200": {description: The item., headers: {ETag: {schema: {type: string}}},`,
					"operationId: replaceItem\n", "operationId: replaceItem\n      parameters: [{name: If-Match, in: header, schema: {type: string}}]\n",
					`{"204": {description: It is gone.}}`, `{"204": {description: It is gone.}, "412": {description: It has changed.}}`).Replace(document)
				document = strings.ReplaceAll(document, `"404": {description: None.}}`, `"404": {description: None.}, "412": {description: It has changed.}}`)
			}
			for _, printed := range conformOf(t, document, conform.Options{Write: true}, func() http.Handler { return items(t, strings.Split(c.ways, ",")...) }) {
				require.Contains(t, printed, c.want)
				require.Equal(t, strings.HasPrefix(c.want, "fault"), !strings.Contains(printed, " 0 faults"), printed)
			}
		})
	}
}

func TestSearchesByPOSTAreCompared(t *testing.T) {
	t.Parallel()
	const paths = `x-gatehouse-tenant: request
paths:
  /search:
    post:
      operationId: search
      x-gatehouse-read: true
      requestBody: {required: true, content: {application/json: {schema: {type: object, properties: {text: {type: string}}}}}}
      responses: {"200": {description: Items., content: {application/json: {schema: {type: array, items: {type: object, required: [id], properties: {id: {type: string}}}}}}}, "422": {description: It is refused.}}
`
	for way, want := range map[string]string{
		"":        "1 operation, 4 requests: 0 faults",
		"leak":    "fault isolation: search: POST /search as B",
		"default": "fault unknown-business: search: POST /search as nobody",
		"refusal": "skipped search: the example of its request is not accepted",
	} {
		for _, printed := range conformOf(t, paths, conform.Options{}, func() http.Handler {
			return small(func(_ *http.Request, business string) (int, any) {
				switch {
				case way == "refusal":
					return http.StatusUnprocessableEntity, nil
				case way == "default" && business == "", way == "leak" && business == "18":
					business = "17"
				case business != "17" && business != "18":
					return http.StatusForbidden, nil
				}
				return http.StatusOK, []any{object{"id": "i-" + business}}
			})
		}) {
			require.Contains(t, printed, want)
		}
	}
}

// One operation is enough to find what a service does with the algorithm none, and a response of success is not needed for it.
func TestAssertionsAreTriedWithOneOperation(t *testing.T) {
	t.Parallel()
	const paths = `x-gatehouse-tenant: request
paths:
  /orders:
    get:
      operationId: listOrders
      responses: {"200": {description: Orders., content: {application/json: {schema: {type: array, items: {type: object, required: [id], properties: {id: {type: string}}}}}}}}
BELOW`
	const below = `  /orders/{order_id}/invoice:
    get:
      operationId: getInvoice
      parameters: [{name: order_id, in: path, required: true, schema: {type: string}}]
      responses: {"200": {description: An invoice., content: {application/json: {schema: {type: object, properties: {total: {type: string}}}}}}, "404": {description: None.}}
`
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	o := conform.Options{Asserter: upstream.AsserterOptions{Issuer: "gatehouse", Keys: []ed25519.PrivateKey{key}}}
	for part, want := range map[string]string{
		"":    "fault assertion: listOrders: GET /orders as A\n  expected status 401 for an assertion with the algorithm none",
		below: "fault assertion: getInvoice: GET /orders/{order_id}/invoice as A\n  expected status 401 without a right assertion\n  got      status 404",
	} {
		for _, printed := range conformOf(t, strings.Replace(paths, "BELOW", part, 1), o, func() http.Handler {
			asked := 0
			return small(func(r *http.Request, business string) (int, any) {
				header, _ := base64.RawURLEncoding.DecodeString(strings.Split(r.Header.Get("X-Gateway-Assertion"), ".")[0])
				switch asked++; {
				case strings.HasSuffix(r.URL.Path, "/invoice"):
					return http.StatusNotFound, nil
				case part == "" && asked > 1 && business == "17" && !strings.Contains(string(header), `"none"`):
					return http.StatusUnauthorized, nil
				}
				return http.StatusOK, []any{object{"id": "o-" + business}}
			})
		}) {
			require.Contains(t, printed, want)
		}
	}
}

func TestCursorsOfRecordsWithoutAnID(t *testing.T) {
	t.Parallel()
	const paths = `x-gatehouse-tenant: request
paths:
  /events:
    get:
      operationId: listEvents
      parameters: [{name: cursor, in: query, schema: {type: string, maxLength: LENGTH}}]
      responses:
        "200":
          description: Events.
          x-gatehouse-records: {in: events}
          x-gatehouse-page: [{cursor: cursor, response: /next}]
          content: {application/json: {schema: {type: object, required: [events], properties: {next: {type: string}, events: {type: array, items: {type: object, required: [what], properties: {what: {type: string}}}}}}}}
`
	for length, want := range map[string]string{"9": " 0 faults", "2": "fault cursor: listEvents: GET /events as A\n  expected records and a cursor that no page before had\n  got      a cursor that its parameter does not allow"} {
		for _, printed := range conformOf(t, strings.Replace(paths, "LENGTH", length, 1), conform.Options{}, func() http.Handler {
			return small(func(r *http.Request, business string) (int, any) {
				if business != "17" && business != "18" {
					return http.StatusForbidden, nil
				}
				from, _ := strconv.Atoi(strings.TrimPrefix(r.FormValue("cursor"), "from-"))
				list := object{"events": []any{object{"what": "seen"}, object{"what": fmt.Sprint("seen ", from%4, " of ", business)}}}
				if from < 6 {
					list["next"] = fmt.Sprint("from-", from+2)
				}
				return http.StatusOK, list
			})
		}) {
			require.Contains(t, printed, want)
		}
	}
}

// accountsDocument is an API with the business in its paths. Its example is that of nobody.
const accountsDocument = `x-gatehouse-tenant: account_id
paths:
  /accounts/{account_id}/orders:
    parameters: [{name: account_id, in: path, required: true, schema: {type: integer}, example: 4711}]
    get:
      operationId: listOrders
      responses: {"200": {description: Orders., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Order"}}}}}}
    post:
      operationId: addOrder
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/NewOrder"}, example: {name: oak}}}}
      responses: {"201": {description: The order., content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}}, "422": {description: It is refused.}}
  /accounts/{account_id}/orders/{id}:
    parameters:
      - {name: account_id, in: path, required: true, schema: {type: integer}, example: 4711}
      - {name: id, in: path, required: true, schema: {type: string}}
    get:
      operationId: getOrder
      responses: {"200": {description: The order., content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}}, "404": {description: None.}}
    delete:
      operationId: removeOrder
      responses: {"204": {description: It is gone.}, "404": {description: None.}}
components:
  schemas:
    NewOrder: {type: object, required: [name], properties: {name: {type: string}}}
    Order: {type: object, required: [id, account_id, name], properties: {id: {type: string}, account_id: {type: integer}, name: {type: string}}}
`

// once adds what a request names, unless its Idempotency-Key was used: with another name, it is refused.
func once(byKey map[string]object, r *http.Request, add func(name string) object) (status int, made object) {
	var sent struct{ Name string }
	key := r.Header.Get("X-Business-Id") + r.Header.Get("Idempotency-Key")
	switch err := json.NewDecoder(r.Body).Decode(&sent); {
	case err != nil || byKey[key] != nil && byKey[key]["name"] != sent.Name:
		return http.StatusUnprocessableEntity, object{}
	case byKey[key] == nil:
		byKey[key] = add(sent.Name)
	}
	return http.StatusCreated, byKey[key]
}

func TestServicesWithTheBusinessInThePath(t *testing.T) {
	t.Parallel()
	type breakage struct{ leaks, keepsDeleted bool }
	service := func(b breakage) func() http.Handler {
		return func() http.Handler {
			orders, byKey := map[string][]object{}, map[string]object{}
			add := func(business, name string) object {
				account, _ := strconv.Atoi(business)
				o := object{"id": uuid.NewString(), "account_id": account, "name": name}
				orders[business] = append(orders[business], o)
				return o
			}
			for _, business := range []string{"17", "18"} {
				add(business, "elm of "+business)
				add(business, "ash of "+business)
			}
			return small(func(r *http.Request, business string) (int, any) {
				rest, ok := strings.CutPrefix(r.URL.Path, "/accounts/"+business+"/orders")
				id := strings.TrimPrefix(rest, "/")
				switch {
				case !ok || orders[business] == nil:
					return http.StatusForbidden, nil
				case r.Method == http.MethodPost:
					status, made := once(byKey, r, func(name string) object { return add(business, name) })
					return status, made
				case id == "":
					return http.StatusOK, orders[business]
				}
				for owner, all := range orders {
					for i, o := range all {
						switch {
						case o["id"] != id || owner != business && !b.leaks:
						case r.Method == http.MethodGet:
							account, _ := strconv.Atoi(business)
							return http.StatusOK, object{"id": id, "account_id": account, "name": o["name"]}
						case owner == business:
							if !b.keepsDeleted {
								orders[owner] = slices.Delete(slices.Clone(all), i, i+1)
							}
							return http.StatusNoContent, nil
						}
					}
				}
				return http.StatusNotFound, nil
			})
		}
	}
	for name, c := range map[string]struct {
		breakage
		rule string
	}{
		"right":                               {},
		"with others' orders under one's own": {breakage{leaks: true}, "isolation"},
		"that does not delete":                {breakage{keepsDeleted: true}, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, printed := range conformOf(t, accountsDocument, conform.Options{Write: true}, service(c.breakage)) {
				require.NotContains(t, printed, "no request could be made")
				require.NotContains(t, printed, "no record was created")
				if c.rule == "" {
					require.Contains(t, printed, " 0 faults")
				} else {
					require.Contains(t, printed, c.rule)
				}
			}
		})
	}
}

// racing is an API of lists, and of records in an envelope.
const racing = `x-gatehouse-tenant: request
paths:
  /items:
    get:
      operationId: listItems
      responses: {"200": {description: Items., content: {application/json: {schema: {type: object, properties: {data: {type: array, items: {$ref: "#/components/schemas/Item"}}}}}}}}
    post:
      operationId: addItem
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {type: object, required: [name], properties: {name: {type: string}}}, example: {name: oak}}}}
      responses: {"201": {description: The item., content: {application/json: {schema: {type: object, properties: {data: {$ref: "#/components/schemas/Item"}}}}}}, "422": {description: It is refused.}}
  /items/{item}:
    parameters: [{name: item, in: path, required: true, schema: {type: string}}]
    get:
      operationId: getItem
      responses: {"200": {description: The item., content: {application/json: {schema: {type: object, properties: {data: {$ref: "#/components/schemas/Item"}}}}}}, "404": {description: None.}}
    delete:
      operationId: removeItem
      responses: {"204": {description: It is gone.}, "404": {description: None.}}
components: {schemas: {Item: {type: object, required: [id, name], properties: {id: {type: string}, name: {type: string}}}}}
`

// overwritten keeps the business of a request where the next one overwrites it. What it returns waits shortly for another one.
func overwritten() func(business string) (last string) {
	var business atomic.Value
	var mu sync.Mutex
	next := make(chan struct{}) // closed when the next request comes
	return func(own string) string {
		mu.Lock()
		business.Store(own)
		close(next)
		next = make(chan struct{})
		another := next
		mu.Unlock()
		select {
		case <-another:
		case <-time.After(20 * time.Millisecond): // none comes
		}
		return business.Load().(string)
	}
}

func TestServicesThatConfuseRequestsAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, confuses := range []bool{false, true} {
		t.Run(fmt.Sprint(confuses), func(t *testing.T) {
			t.Parallel()
			for _, printed := range conformOf(t, racing, conform.Options{}, func() http.Handler {
				last := overwritten()
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					own := r.Header.Get("X-Business-Id")
					w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
					w.Header().Set("Content-Type", "application/json")
					if confuses {
						own = last(own)
					}
					switch {
					case own != "17" && own != "18":
						w.WriteHeader(http.StatusForbidden)
					case r.URL.Path == "/items":
						_ = json.NewEncoder(w).Encode(object{"data": []any{object{"id": "3b0f7a9e-58c1-4e0f-9b55-2f1f3f6d7c" + own, "name": "elm"}}})
					case strings.HasSuffix(r.URL.Path, "c"+own):
						_ = json.NewEncoder(w).Encode(object{"data": object{"id": "3b0f7a9e-58c1-4e0f-9b55-2f1f3f6d7c" + own, "name": "elm"}})
					default:
						w.WriteHeader(http.StatusNotFound)
					}
				})
			}) {
				if !confuses {
					require.Contains(t, printed, " 0 faults")
				} else {
					require.Contains(t, printed, "which asked at the same time")
				}
			}
		})
	}
}

func TestRecordsInAnEnvelopeAreKnown(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint(keeps), func(t *testing.T) {
			t.Parallel()
			for _, printed := range conformOf(t, racing, conform.Options{Write: true}, func() http.Handler {
				items, byKey := map[string][]object{}, map[string]object{}
				add := func(business, name string) object {
					o := object{"id": uuid.NewString(), "name": name}
					items[business] = append(items[business], o)
					return o
				}
				add("17", "elm")
				add("18", "ash")
				return small(func(r *http.Request, business string) (int, any) {
					id := strings.TrimPrefix(r.URL.Path, "/items/")
					i := slices.IndexFunc(items[business], func(o object) bool { return o["id"] == id })
					switch {
					case items[business] == nil:
						return http.StatusForbidden, nil
					case r.Method == http.MethodPost:
						status, made := once(byKey, r, func(name string) object { return add(business, name) })
						return status, object{"data": made}
					case id == "/items":
						return http.StatusOK, object{"data": items[business]}
					case i < 0:
						return http.StatusNotFound, nil
					case r.Method == http.MethodGet:
						return http.StatusOK, object{"data": items[business][i]}
					case !keeps:
						items[business] = slices.Delete(slices.Clone(items[business]), i, i+1)
					}
					return http.StatusNoContent, nil
				})
			}) {
				require.NotContains(t, printed, "has no ID")
				if keeps {
					require.Contains(t, printed, "fault delete")
				} else {
					require.Contains(t, printed, " 0 faults")
				}
			}
		})
	}
}

// Businesses may share objects that belong to nobody, such as a plan.
func TestObjectsWithAnIDMayBelongToNobody(t *testing.T) {
	t.Parallel()
	const settings = `x-gatehouse-tenant: request
paths:
  /settings:
    get:
      operationId: getSettings
      responses: {"200": {description: Settings., content: {application/json: {schema: {type: object, properties: {plan: {type: object, properties: {id: {type: string}}}}}}}}}
  /usage:
    get:
      operationId: getUsage
      responses: {"200": {description: Usage., content: {application/json: {schema: {type: object, properties: {plan: {type: object, properties: {id: {type: string}}}, calls: {type: integer}}}}}}}
`
	for _, printed := range conformOf(t, settings, conform.Options{}, func() http.Handler {
		return small(func(r *http.Request, business string) (int, any) {
			switch {
			case business != "17" && business != "18":
				return http.StatusForbidden, nil
			case r.URL.Path == "/settings":
				return http.StatusOK, object{"plan": object{"id": "pro"}}
			}
			return http.StatusOK, object{"plan": object{"id": "pro"}, "calls": len(business)}
		})
	}) {
		require.Contains(t, printed, " 0 faults")
	}
}

// thingsDocument is an API as frameworks generate it, without examples. VALUE is the schema of what a thing has.
const thingsDocument = `x-gatehouse-tenant: request
paths:
  /things:
    get:
      operationId: listThings
      responses: {"200": {description: Things., content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Thing"}}}}}}
    post:
      operationId: addThing
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
      requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}
      responses: {"201": {description: The thing., content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}, "422": {description: It is refused.}}
  /things/{thing}:
    parameters: [{name: thing, in: path, required: true, schema: {type: string}}]
    get:
      operationId: getThing
      responses: {"200": {description: The thing., content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}, "404": {description: None.}}
    put:
      operationId: putThing
      requestBody: {required: true, content: {application/json: {schema: {type: object, required: [kind, secret, thing, value, version], properties: {kind: {type: string}, secret: {type: string, writeOnly: true}, thing: {type: string}, value: VALUE, version: {type: integer}}}}}}
      responses: {"200": {description: The thing., content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}, "204": {description: It is changed.}, "404": {description: None.}, "422": {description: It is refused.}}
    patch:
      operationId: patchThing
      requestBody: {required: true, content: {application/merge-patch+json: {schema: {type: object, properties: {value: VALUE}}}}}
      responses: {"200": {description: The thing., content: {application/json: {schema: {$ref: "#/components/schemas/Thing"}}}}, "404": {description: None.}, "422": {description: It is refused.}}
    delete:
      operationId: removeThing
      responses: {"204": {description: It is gone.}, "404": {description: None.}}
components:
  schemas:
    Thing:
      type: object
      required: [id, kind, value, version, secret]
      properties: {id: {type: string, readOnly: true}, kind: {type: string}, state: {type: string, readOnly: true}, value: VALUE, version: {type: integer}, secret: {type: string, writeOnly: true}}
`

// things is a service of the document. way names how it is broken, or differs from a usual one.
func things(way string) http.Handler {
	all, byKey, sentByKey := map[string]object{}, map[string]object{}, map[string]string{}
	add := func(of, id string, sent object) object {
		all[of+" "+id] = object{"id": id, "kind": sent["kind"], "state": "new", "value": sent["value"], "version": sent["version"]}
		return all[of+" "+id]
	}
	var first any // value, which the service takes for the only one that is possible
	return small(func(r *http.Request, business string) (int, any) {
		if business != "17" && business != "18" {
			return http.StatusForbidden, nil
		}
		body, _ := io.ReadAll(r.Body)
		sent := object{}
		_ = json.Unmarshal(body, &sent)
		id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/things"), "/")
		owner := business
		if all[business+" "+id] == nil && strings.HasPrefix(way, "foreign "+r.Method) {
			owner = map[string]string{"17": "18", "18": "17"}[business]
		}
		found := all[owner+" "+id]
		switch {
		case id == "" && r.Method == http.MethodGet:
			own := []object{}
			for _, key := range slices.Sorted(maps.Keys(all)) {
				if strings.HasPrefix(key, business) {
					own = append(own, all[key])
				}
			}
			return http.StatusOK, own
		case id == "":
			key := business + r.Header.Get("Idempotency-Key")
			switch first = cmp.Or(first, sent["value"]); {
			case sentByKey[key] != "" && sentByKey[key] != string(body):
				return http.StatusUnprocessableEntity, nil
			case byKey[key] == nil:
				byKey[key], sentByKey[key] = add(business, uuid.NewString(), sent), string(body)
			}
			return http.StatusCreated, byKey[key]
		case found == nil && r.Method == http.MethodPut && way == "creates":
			return http.StatusOK, add(business, id, sent)
		case found == nil:
			return http.StatusNotFound, nil
		case r.Method == http.MethodGet:
			return http.StatusOK, maps.Clone(found)
		case r.Method == http.MethodDelete:
			delete(all, owner+" "+id)
			return http.StatusNoContent, nil
		case strings.HasSuffix(way, "strict") && sent["value"] != first, r.Method == http.MethodPut && (sent["thing"] != id || sent["version"] != found["version"]): // a thing names itself
			return http.StatusUnprocessableEntity, nil
		case way != "idle "+r.Method && !(strings.HasSuffix(way, "untouched") && owner != business):
			if found["value"] = sent["value"]; r.Method == http.MethodPut && way != "one kind" {
				found["kind"] = sent["kind"]
			}
		}
		switch {
		case owner != business && strings.HasSuffix(way, "masked"):
			return http.StatusNotFound, nil
		case r.Method == http.MethodPut && way == "204":
			return http.StatusNoContent, nil
		}
		return http.StatusOK, maps.Clone(found)
	})
}

// Without an example, the body of a change would be that of the creation, and no comparison could see the change.
func TestChangesAreSeenWithoutExamples(t *testing.T) {
	t.Parallel()
	const (
		none    = " 0 faults, 0 hints\n"
		same    = "Thing: the example of its request changes nothing of the record that was created, and other values are not known, or refused: give the document another"
		idle    = "fault change: getThing: GET /things/{thing} as A\n  expected another record after "
		foreign = " /things/{thing} as B\n  expected a status from 400 for a record of A, and nothing else\n  got      status "
	)
	for name, c := range map[string]struct{ way, value, want string }{
		"a usual service":                       {"", "{type: string}", none},
		"a PUT without a body in its response":  {"204", "{type: string}", none},
		"a PUT that creates for each business":  {"creates", "{type: string}", none},
		"a value that the service may refuse":   {"strict", "{type: string}", "skipped put" + same},
		"a text of which no other one is known": {"", `{type: string, pattern: "^[A-Z]{2}$", example: DE}`, "skipped patch" + same},
		"a constant":                            {"", "{type: string, const: new}", "skipped patch" + same},
		"a PUT that keeps one of the members":   {"one kind", "{type: string}", "hint stored: getThing: GET /things/{thing} as A\n  at       /kind"},

		"a PUT that does nothing":   {"idle PUT", "{type: string}", idle + "putThing"},
		"a PATCH that does nothing": {"idle PATCH", "{type: string}", idle + "patchThing"},
		"of a number":               {"idle PATCH", "{type: integer, minimum: 1, maximum: 5}", idle + "patchThing"},
		"of an amount":              {"idle PATCH", "{type: number, minimum: 1.5, maximum: 9}", idle + "patchThing"},
		"of a choice":               {"idle PATCH", "{type: string, enum: [new, used]}", idle + "patchThing"},
		"of a flag":                 {"idle PATCH", "{type: boolean}", idle + "patchThing"},
		"of a date":                 {"idle PATCH", `{type: string, format: date, example: "2027-01-31"}`, idle + "patchThing"},

		"a PUT by B":                       {"foreign PUT", "{type: string}", "fault isolation: putThing: PUT" + foreign + "200, and the change was made"},
		"a PUT by B that is refused":       {"foreign PUT, masked", "{type: string}", "fault isolation: putThing: PUT" + foreign + "404, and the change was made"},
		"a PUT by B that does nothing":     {"foreign PUT, untouched", "{type: string}", "fault isolation: putThing: PUT" + foreign + "200, and the record of A"},
		"a PATCH by B with the only value": {"foreign PATCH, strict", "{type: string}", "fault isolation: patchThing: PATCH" + foreign + "200"},
		"a PATCH by B":                     {"foreign PATCH", "{type: boolean}", "fault isolation: patchThing: PATCH" + foreign + "200, and the change was made"},
		"a PATCH by B that is refused":     {"foreign PATCH, masked", "{type: boolean}", "fault isolation: patchThing: PATCH" + foreign + "404, and the change was made"},
		"a PATCH by B that does nothing":   {"foreign PATCH, untouched", "{type: string}", "fault isolation: patchThing: PATCH" + foreign + "200, and the record of A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document := strings.ReplaceAll(thingsDocument, "VALUE", c.value)
			for _, printed := range conformOf(t, document, conform.Options{Write: true}, func() http.Handler { return things(c.way) }) {
				require.Contains(t, printed, c.want)
				require.Equal(t, strings.HasPrefix(c.want, "fault"), !strings.Contains(printed, " 0 faults"), printed)
				require.Equal(t, strings.HasPrefix(c.want, "skipped") || strings.HasSuffix(c.way, "strict"), strings.Contains(printed, "changes nothing"), printed)
			}
		})
	}
}

// A service may report with a documented status of success that there is no such record. This is a fault, but nobody's record has left.
func TestAnErrorWithStatus200IsNoLeak(t *testing.T) {
	t.Parallel()
	for _, printed := range conformOf(t, strings.ReplaceAll(thingsDocument, "VALUE", "{type: string}"), conform.Options{Write: true}, func() http.Handler {
		service := things("")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorded := httptest.NewRecorder()
			if service.ServeHTTP(recorded, r); recorded.Code == http.StatusNotFound {
				recorded.Code, recorded.Body = http.StatusOK, bytes.NewBufferString(`{"error":"none"}`)
			}
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
		})
	}) {
		for _, want := range []string{"fault schema: putThing: PUT /things/{thing} as B", "fault status: removeThing: DELETE /things/{thing} as B"} {
			require.Contains(t, printed, want)
		}
		require.NotContains(t, printed, "fault isolation")
	}
}

// What may be the same for all, such as a day, is not compared.
func TestRecordsThatNoListHas(t *testing.T) {
	t.Parallel()
	const paths = `x-gatehouse-tenant: request
paths:
  /guests/{guest_id}:
    get:
      operationId: getGuest
      parameters: [{name: guest_id, in: path, required: true, schema: {type: integer}, example: 4}]
      responses: {"200": {description: A guest., IS content: {application/json: {schema: {type: object, required: [MEMBER], properties: {MEMBER: {type: integer}, name: {type: string}}}}}}, "404": {description: None.}}
  /days/{day}:
    get:
      operationId: getDay
      parameters: [{name: day, in: path, required: true, schema: {type: string, format: date}, example: "2027-01-31"}]
      responses: {"200": {description: A day., content: {application/json: {schema: {type: object, properties: {day: {type: string}}}}}}}
`
	const shared = "hint shared-record: getGuest: GET /guests/{guest_id} as %s\n  expected another record, or none: no list says whose this one is\n  got      a record that A gets, too"
	for way, want := range map[string]string{
		"": " 0 faults, 0 hints", "own": " 0 faults, 0 hints",

		"everybody's": fmt.Sprintf(shared, "B") + " (3 times)\n",
		"default":     fmt.Sprintf(shared, "nobody"),
	} {
		for _, member := range []string{"id", "no"} {
			is := map[string]string{"no": "x-gatehouse-records: {is: {no: guest_id}},"}[member]
			for _, printed := range conformOf(t, strings.NewReplacer("MEMBER", member, "IS", is).Replace(paths), conform.Options{}, func() http.Handler {
				return small(func(r *http.Request, business string) (int, any) {
					day, isDay := strings.CutPrefix(r.URL.Path, "/days/")
					switch known := business == "17" || business == "18"; {
					case isDay:
						return http.StatusOK, object{"day": day}
					case way == "default" && !known:
						business = "17"
					case r.URL.Path != "/guests/4" || way != "everybody's" && (!known || business != "17" && way != "own"):
						return http.StatusNotFound, nil
					}
					return http.StatusOK, object{member: 4, "name": "Ada" + map[string]string{"own": business}[way]}
				})
			}) {
				require.Contains(t, printed, want)
				require.Contains(t, printed, " 0 faults")
				require.NotContains(t, printed, "skipped getGuest")
				require.Contains(t, printed, "skipped getDay: isolation: no list has the IDs of its path")
			}
		}
	}
}
