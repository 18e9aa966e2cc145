package definition_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

func TestPublicContractIsCompiledFromItsDocument(t *testing.T) {
	t.Parallel()
	api := definition.Public()
	require.Equal(t, "/api/v1", api.Base())
	require.Len(t, api.Resources(false), 10)
	require.Len(t, api.Resources(true), 8)
	m, ok := api.Match("/api/v1/events?count=3")
	require.True(t, ok)
	events := m.Path.Operation(http.MethodHead)
	require.Equal(t, "listEvents", events.ID)
	require.Equal(t, "count", events.Params[0].Name)
	require.Equal(t, [2]int{1, 100}, [2]int{events.Params[0].Min, events.Params[0].Max})
	require.Equal(t, []string{"published_at", "created_at"}, events.Responses[0].Records.Order)
	require.Equal(t, []string{"published"}, events.Responses[0].Body.Property("events").Schema.Items.VisibleValues)
	require.JSONEq(t, `{"status":"ok","api_version":"v1"}`, string(api.Operations()[0].StaticBody))
	require.True(t, api.Operations()[0].Public)
	require.False(t, api.Operations()[1].Public)
}

// What cannot be enforced is refused, with its place: a mistake never weakens a check silently.
func TestFaultsOfADocumentHaveTheirPlace(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("public.yaml")
	require.NoError(t, err)
	const contact = "    Contact:\n      description: A person or firm that the business deals with.\n      type: object\n"
	for name, change := range map[string]struct{ old, replacement, pointer, message string }{
		"an unknown extension":             {"  /events:\n    get:\n", "  /events:\n    get:\n      x-gatehouse-visable: {}\n", "/paths/~1events/get/x-gatehouse-visable", "cannot be enforced here"},
		"a member twice":                   {"  /me:\n    get:\n", "  /me:\n    get:\n      operationId: x\n", "/paths/~1me/get/operationId", "duplicate member"},
		"a write that the gateway answers": {"  /me:\n    get:", "  /me:\n    post:", "/paths/~1me/post/x-gatehouse-answer", "is for GET"},
		"a path parameter":                 {"  /events:\n", "  /events/{id}:\n", "/paths/~1events~1{id}/get", "the parameter id of the path is not declared"},
		"another media type":               {"application/json:\n              schema: {$ref: \"#/components/schemas/StatusAnswer\"}", "text/html:\n              schema: {$ref: \"#/components/schemas/StatusAnswer\"}", "/paths/~1status/get/responses/200/content/text~1html", "text/html cannot be enforced"},
		"no such reference":                {"#/components/schemas/StatusAnswer", "#/components/schemas/Nothing", "/paths/~1status/get/responses/200/content/application~1json/schema/$ref", "is not a value of this document"},
		"a reference to a file":            {"#/components/schemas/StatusAnswer", "other.yaml#/StatusAnswer", "/paths/~1status/get/responses/200/content/application~1json/schema/$ref", "bundler"},
		"references in a circle":           {"    Money:\n", "    Money:\n      $ref: \"#/components/schemas/Money\"\n", "/components/schemas/Money", "circular"},
		"an optional member":               {contact, strings.Replace(contact, "type: object\n", "type: object\n      x: y\n", 1), "/components/schemas/Contact/x", "cannot be enforced here"},
		"an undeclared required member":    {"[id, first_name,", "[id, frist_name, first_name,", "/components/schemas/Contact/required/1", "frist_name is not declared"},
		"a parameter in a header":          {"name: count\n      in: query", "name: count\n      in: cookie", "/components/parameters/Count/in", "must be one of query, path or header"},
		"no bound of a text":               {"maxLength: 128", "maxLength: -1", "/components/parameters/ContactStatusFilter/schema/maxLength", "must be a whole number"},
		"no tenant":                        {"x-gatehouse-tenant: business_id\n", "", "/paths/~1business/get", "x-gatehouse-tenant is missing"},
		"a tenant that is not declared":    {"x-gatehouse-tenant: business_id\n", "x-gatehouse-tenant: company\n", "/paths/~1contacts/get/responses/200/x-gatehouse-records", "the records must declare the tenant company"},
		"an order by an unknown member":    {"order: [date_created]", "order: [created]", "/paths/~1contacts/get/responses/200/x-gatehouse-records/order/0", "must be a declared member"},
		"a list without a bound":           {"at_most: count", "at_most: page", "/paths/~1events/get/responses/200/x-gatehouse-records/at_most", "must be a parameter"},
		"records that are not there":       {"{in: business}", "{in: company}", "/paths/~1business/get/responses/200/x-gatehouse-records", `no member "company"`},
		"a page that is not there":         {"response: /pagination/per_page", "response: /pagination/size", "/paths/~1contacts/get/responses/200/x-gatehouse-page/1/response", "is not a member of the response"},
		"internal for all references":      {"    Money:\n", "    Money:\n      x-gatehouse-internal: true\n", "/components/schemas/Money/x-gatehouse-internal", "is for the place of the member"},
		"public records":                   {"  /events:\n    get:\n", "  /events:\n    get:\n      x-gatehouse-public: true\n", "/paths/~1events/get/x-gatehouse-public", "needs x-gatehouse-answer"},
		"a flag that is none":              {"status: {type: string, x-gatehouse-internal: true}", "status: {type: string, x-gatehouse-internal: yes please}", "/components/schemas/Event/properties/status/x-gatehouse-internal", "must be true or false"},
		"a server elsewhere":               {"url: /api/v1", "url: https://api.example.com/a{b}", "/servers/0/url", "the path of the server must be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, string(text), change.old)
			changed := strings.Replace(string(text), change.old, change.replacement, 1)
			_, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(changed)}, definition.Options{})
			require.Error(t, err)
			var faults []string
			joined, ok := err.(interface{ Unwrap() []error })
			require.True(t, ok, "%v", err)
			found := false
			for _, err := range joined.Unwrap() {
				var fault *definition.FaultError
				require.ErrorAs(t, err, &fault)
				assert.Positive(t, fault.Line, fault)
				faults = append(faults, fault.Error())
				found = found || fault.Pointer == change.pointer && strings.Contains(fault.Message, change.message)
			}
			require.True(t, found, strings.Join(faults, "\n"))
		})
	}
	for name, text := range map[string]string{"nothing": "", "not YAML": "a: [", "a list": "[]", "a text": "x"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
			require.Error(t, err)
			require.NotErrorIs(t, err, errors.ErrUnsupported)
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	text, err := os.ReadFile("public.yaml")
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := definition.Load(definition.File{Name: "public.yaml", Text: text}, definition.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
