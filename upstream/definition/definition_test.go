package definition_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

func TestPublicContractIsCompiledFromItsDocument(t *testing.T) {
	t.Parallel()
	api := definition.Public()
	require.Equal(t, "/api/v1", api.Base())
	require.Len(t, api.Resources(), 10)
	events := api.ByName("events")
	require.Equal(t, []upstream.Param{{Name: "count", Default: 10, Min: 1, Max: 100}}, events.Params)
	require.Equal(t, []string{"published_at", "created_at"}, events.Order)
	require.Equal(t, []string{"published"}, events.Shown)
	require.JSONEq(t, `{"status":"ok","api_version":"v1"}`, string(api.ByName("status").Answer))
	require.True(t, api.ByName("status").Public)
	require.False(t, api.ByName("me").Public)
}

// What cannot be enforced is refused, with its place: a mistake never weakens a check silently.
func TestFaultsOfADocumentHaveTheirPlace(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("public.yaml")
	require.NoError(t, err)
	const contact = "    Contact:\n      description: A person or firm that the business deals with.\n      type: object\n"
	for name, change := range map[string]struct{ old, replacement, pointer, message string }{
		"an unknown keyword":             {"        - $ref: \"#/components/parameters/Count\"\n", "        - $ref: \"#/components/parameters/Count\"\n      callbacks: {}\n", "/paths/~1events/get/callbacks", "cannot be enforced here"},
		"an unknown extension":           {"  /events:\n    get:\n", "  /events:\n    get:\n      x-gatehouse-visable: {}\n", "/paths/~1events/get/x-gatehouse-visable", "cannot be enforced here"},
		"a member twice":                 {"  /me:\n    get:\n", "  /me:\n    get:\n      operationId: x\n", "/paths/~1me/get/operationId", "stands here twice"},
		"a write":                        {"  /me:\n    get:", "  /me:\n    post:", "/paths/~1me/post", "cannot be enforced here"},
		"a path parameter":               {"  /events:\n", "  /events/{id}:\n", "/paths/~1events~1{id}", "must be one segment"},
		"another status":                 {"        \"200\":\n          description: The API is up.", "        \"201\":\n          description: The API is up.", "/paths/~1status/get/responses/201", "cannot be enforced here"},
		"another media type":             {"application/json:\n              schema: {$ref: \"#/components/schemas/StatusAnswer\"}", "text/html:\n              schema: {$ref: \"#/components/schemas/StatusAnswer\"}", "/paths/~1status/get/responses/200/content/text~1html", "cannot be enforced here"},
		"no such reference":              {"#/components/schemas/StatusAnswer", "#/components/schemas/Nothing", "/paths/~1status/get/responses/200/content/application~1json/schema/$ref", "is not a value of this document"},
		"a reference to a file":          {"#/components/schemas/StatusAnswer", "other.yaml#/StatusAnswer", "/paths/~1status/get/responses/200/content/application~1json/schema/$ref", "is not a value of this document"},
		"references in a circle":         {"    Money:\n", "    Money:\n      $ref: \"#/components/schemas/Money\"\n", "/components/schemas/Money", "circle"},
		"an optional member":             {contact, strings.Replace(contact, "type: object\n", "type: object\n      x: y\n", 1), "/components/schemas/Contact/x", "cannot be enforced here"},
		"an undeclared required member":  {"[id, first_name,", "[id, frist_name, first_name,", "/components/schemas/Contact/required/1", "frist_name is not declared"},
		"a format":                       {"format: decimal", "format: money", "/components/schemas/Money", "the format money cannot be enforced"},
		"a pattern":                      {"format: decimal", "format: decimal\n      pattern: x", "/components/schemas/Money/pattern", "cannot be enforced here"},
		"a parameter without clamp":      {"      x-gatehouse-clamp: true\n      example: 2\n", "      example: 2\n", "/components/parameters/Page", "x-gatehouse-clamp is missing"},
		"a parameter in a header":        {"name: count\n      in: query", "name: count\n      in: header", "/components/parameters/Count/in", "must be query"},
		"no bound of a text":             {"maxLength: 128", "maxLength: 9000", "/components/parameters/ContactStatusFilter/schema", "maxLength must be 1 to 128"},
		"no tenant":                      {"x-gatehouse-tenant: business_id\n", "", "/paths/~1business/get", "x-gatehouse-tenant is missing"},
		"a tenant that is not declared":  {"x-gatehouse-tenant: business_id\n", "x-gatehouse-tenant: company\n", "/components/schemas/Business", "the tenant company must be declared"},
		"an order by an unknown member":  {"order: [date_created]", "order: [created]", "/paths/~1contacts/get/responses/200/x-gatehouse-records/order/0", "must be a declared member"},
		"no order":                       {"order: [date_created], ", "", "/paths/~1contacts/get", "an order is missing"},
		"a list without a bound":         {"at_most: count", "at_most: page", "/paths/~1events/get/responses/200/x-gatehouse-records/at_most", "must be a parameter"},
		"records that are not there":     {"{in: business}", "{in: company}", "/paths/~1business/get/responses/200/x-gatehouse-records", `no member "company"`},
		"visibility by a public member":  {"x-gatehouse-visible: {status: [published]}", "x-gatehouse-visible: {title: [published]}", "/components/schemas/Event/x-gatehouse-visible/title", "must be a declared member with x-gatehouse-internal"},
		"a page that is not there":       {"response: /pagination/per_page", "response: /pagination/size", "/paths/~1contacts/get/responses/200/x-gatehouse-page/1/response", "is not a member beside the records"},
		"internal for all references":    {"    Money:\n", "    Money:\n      x-gatehouse-internal: true\n", "/components/schemas/Money/x-gatehouse-internal", "cannot be enforced here"},
		"public records":                 {"  /events:\n    get:\n", "  /events:\n    get:\n      x-gatehouse-public: true\n", "/paths/~1events/get/x-gatehouse-public", "needs x-gatehouse-answer"},
		"a flag that is none":            {"status: {type: string, x-gatehouse-internal: true}", "status: {type: string, x-gatehouse-internal: yes please}", "/components/schemas/Event/properties/status/x-gatehouse-internal", "must be true or false"},
		"visibility in a record":         {"    EventSession:\n", "    EventSession:\n      x-gatehouse-visible: {date: [x]}\n", "/components/schemas/EventSession/x-gatehouse-visible", "cannot be enforced here"},
		"visibility of one record":       {"    Business:\n", "    Business:\n      x-gatehouse-visible: {business_id: [x]}\n", "/components/schemas/Business/x-gatehouse-visible", "is for the records of a list"},
		"an internal member in a member": {"        date: {$ref: \"#/components/schemas/Date\"}\n", "        date: {$ref: \"#/components/schemas/Date\", x-gatehouse-internal: true}\n", "/components/schemas/EventSession", "is for members of records"},
		"a server elsewhere":             {"url: /api/v1", "url: https://api.example.com", "/servers", "must be a path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, string(text), change.old)
			changed := strings.Replace(string(text), change.old, change.replacement, 1)
			_, err := definition.Load("api.yaml", []byte(changed))
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
			_, err := definition.Load("api.yaml", []byte(text))
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
		if _, err := definition.Load("public.yaml", text); err != nil {
			b.Fatal(err)
		}
	}
}
