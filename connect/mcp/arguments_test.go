package mcp

import (
	stdjson "encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// What models get wrong is accepted if it has only one meaning. Everything else is an error, and nothing of it is sent.
func TestArgumentsAreReadLeniently(t *testing.T) {
	t.Parallel()
	all := tools(t)
	const no = "is rejected"
	for _, test := range []struct{ tool, sent, means string }{
		{"contacts_search", `{"limit":3}`, `{"limit":3}`},
		{"contacts_search", `{"limit":3.0}`, `{"limit":3}`},
		{"contacts_search", `{"limit":0.3e1}`, `{"limit":3}`},
		{"contacts_search", `{"limit":"3"}`, `{"limit":3}`},
		{"contacts_search", `{"limit":" 3 "}`, `{"limit":3}`},
		{"contacts_search", `{"limit":"3.0"}`, `{"limit":3}`},
		{"contacts_search", `{"limit":3.5}`, no},
		{"contacts_search", `{"limit":"3.5"}`, no},
		{"contacts_search", `{"limit":3.0000000000000000001}`, no},
		{"contacts_search", `{"limit":"3.0000000000000000001"}`, no},
		{"contacts_search", `{"limit":1e-400}`, no},
		{"contacts_search", `{"limit":1e-999999999}`, no},
		{"contacts_search", `{"limit":3e99999}`, no},
		{"contacts_search", `{"limit":"0x3"}`, no},
		{"contacts_search", `{"limit":"+3"}`, no},
		{"contacts_search", `{"limit":"03"}`, no},
		{"contacts_search", `{"limit":"3 4"}`, no},
		{"contacts_search", `{"limit":"3,0"}`, no},
		{"contacts_search", `{"limit":"three"}`, no},
		{"contacts_search", `{"limit":""}`, no},
		{"contacts_search", `{"limit":true}`, no},
		{"contacts_search", `{"limit":[3]}`, no},
		{"contacts_search", `{"limit":{"value":3}}`, no},
		{"contacts_search", `{"limit":null}`, `{}`},
		{"contacts_search", `{"limit":"null"}`, no},
		{"contacts_search", `{"query":7}`, `{"query":"7"}`},
		{"contacts_search", `{"query":6085550123.50}`, `{"query":"6085550123.50"}`},
		{"contacts_search", `{"query":12345678901234567890123}`, `{"query":"12345678901234567890123"}`},
		{"contacts_search", `{"query":1e400}`, `{"query":"1e400"}`},
		{"contacts_search", `{"query":"7"}`, `{"query":"7"}`},
		{"contacts_search", `{"query":" a "}`, `{"query":" a "}`},
		{"contacts_search", `{"query":true}`, no},
		{"contacts_search", `{"query":["a"]}`, no},
		{"contacts_search", `{"query":{"a":1}}`, no},
		{"contacts_search", `{"status":null,"type":null,"query":null,"cursor":null,"fields":null}`, `{}`},
		{"contacts_search", `{"fields":""}`, no},
		{"contacts_search", `{"Limit":3}`, no},
		{"contacts_search", `{"more":null}`, no},
		{"contacts_get", `{"id":10403}`, `{"id":10403}`},
		{"contacts_get", `{"id":"10403"}`, `{"id":10403}`},
		{"contacts_get", `{"id":10403.0000000000000001}`, no},
		{"contacts_get", `{"id":9007199254740993}`, no},
		{"contacts_get", `{"id":"9007199254740992"}`, no},
		{"contacts_get", `{"id":9007199254740991.0}`, `{"id":9007199254740991}`},
		{"contacts_get", `{"id":-0}`, no},
		{"contacts_get", `{"id":null}`, no},
		{"contacts_get", `{"id":""}`, no},
		{"contacts_create", `{"first_name":"A","notes":""}`, no},
		{"contacts_create", `{"first_name":""}`, no},
		{"receptionist_faq_upsert", `{"id":"7","question":""}`, no},
		{"contacts_get", `{}`, no},
		{"invoices_search", `{"status":["paid","sent"]}`, `{"status":["paid","sent"]}`},
		{"invoices_search", `{"status":"paid"}`, `{"status":["paid"]}`},
		{"invoices_search", `{"status":"[\"paid\",\"sent\"]"}`, `{"status":["paid","sent"]}`},
		{"invoices_search", `{"status":"paid,sent"}`, no},
		{"invoices_search", `{"status":""}`, no},
		{"invoices_search", `{"status":[""]}`, no},
		{"invoices_search", `{"status":[]}`, no},
		{"invoices_search", `{"status":[null]}`, no},
		{"invoices_search", `{"status":[["paid"]]}`, no},
		{"invoices_search", `{"status":"PAID"}`, no},
		{"contacts_update", `{"id":7,"notes":null}`, `{"id":7}`},
		{"contacts_update", `{"id":7,"clear":["notes","email"]}`, `{"id":7,"clear":["notes","email"]}`},
		{"contacts_update", `{"id":7,"clear":"notes"}`, `{"id":7,"clear":["notes"]}`},
		{"contacts_update", `{"id":7,"clear":[]}`, `{"id":7,"clear":[]}`},
		{"contacts_update", `{"id":7,"clear":null,"notes":"x"}`, `{"id":7,"notes":"x"}`},
		{"contacts_update", `{"id":7,"clear":["note"]}`, no},
		{"contacts_update", `{"id":7,"clear":["first_name"]}`, no},
		{"contacts_update", `{"id":7,"clear":["notes"],"notes":"x"}`, no},
		{"contacts_create", `{"first_name":"A","clear":["notes"]}`, no},
		{"business_hours_set", `{"days":[{"day":"2030-12-24","spans":null}]}`, `{"days":[{"day":"2030-12-24","spans":null}]}`},
		{"contacts_update", `{"id":7,"first_name":null,"notes":"x"}`, `{"id":7,"notes":"x"}`},
		{"contacts_update", `{"id":7,"phone_number":6085550123,"country_code":"+1"}`, `{"id":7,"phone_number":"6085550123","country_code":"+1"}`},
		{"contacts_update", `{"id":7,"country_code":+1}`, no},
		{"contacts_update", `{"id":7,"notes":"x","if_version":"2"}`, `{"id":7,"notes":"x","if_version":2}`},
		{"contacts_update", `{"id":7,"notes":"x","if_version":2.5}`, no},
		{"contacts_update", `{"id":7,"notes":"x","if_version":"\"2\""}`, no},
		{"receptionist_faq_upsert", `{"question":"q","answer":"a","enabled":"false"}`, `{"question":"q","answer":"a","enabled":false}`},
		{"receptionist_faq_upsert", `{"question":"q","answer":"a","enabled":"False"}`, no},
		{"receptionist_faq_upsert", `{"question":"q","answer":"a","enabled":0}`, no},
		{"receptionist_faq_upsert", `{"question":"q","answer":"a","enabled":"no"}`, no},
		{"receptionist_service_upsert", `{"name":"x","price":80.50}`, `{"name":"x","price":"80.50"}`},
		{"receptionist_service_upsert", `{"name":"x","price":1e3}`, no},
		{"receptionist_service_upsert", `{"name":"x","price":null}`, `{"name":"x"}`},
		{"receptionist_rules_update", `{"remove":"a"}`, `{"remove":["a"]}`},
		{"receptionist_rules_update", `{"remove":7}`, `{"remove":["7"]}`},
		{"receptionist_rules_update", `{"remove":"true"}`, `{"remove":["true"]}`},
		{"receptionist_rules_update", `{"remove":"1.0"}`, `{"remove":["1.0"]}`},
		{"receptionist_rules_update", `{"remove":"007"}`, `{"remove":["007"]}`},
		{"receptionist_rules_update", `{"remove":"null"}`, `{"remove":["null"]}`},
		{"receptionist_rules_update", `{"add":{"when":"w","then":"t"}}`, `{"add":[{"when":"w","then":"t"}]}`},
		{"receptionist_rules_update", `{"add":"{\"when\":\"w\",\"then\":\"t\",\"enabled\":\"true\"}"}`, `{"add":[{"when":"w","then":"t","enabled":true}]}`},
		{"receptionist_rules_update", `{"add":[{"when":"w","then":"t","enabled":null}]}`, `{"add":[{"when":"w","then":"t"}]}`},
		{"receptionist_rules_update", `{"add":[{"when":"w","then":null}]}`, no},
		{"receptionist_rules_update", `{"change":[{"id":"a","before":null}]}`, `{"change":[{"id":"a","before":null}]}`},
		{"service_areas_set", `{"add":[{"name":"M","kind":"city","radius_km":"2.50"}]}`, `{"add":[{"name":"M","kind":"city","radius_km":2.50}]}`},
		{"objects_create", `{"type":"pets","fields":"{\"name\":\"Rex\"}"}`, `{"type":"pets","fields":{"name":"Rex"}}`},
		{"objects_create", `{"type":"pets","fields":{"age":"3","weight":3.0,"x":null}}`, `{"type":"pets","fields":{"age":"3","weight":3.0,"x":null}}`},
		{"objects_create", `{"type":"pets","fields":"{\"name\":1,\"name\":2}"}`, no},
		{"objects_create", `{"type":"pets","fields":[{"name":"Rex"}]}`, no},
		{"objects_create", `{"type":"pets","fields":"Rex"}`, no},
		{"automations_run", `{"automation_id":"a","dry_run":"true"}`, `{"automation_id":"a","dry_run":true}`},
		{"automations_run", `{"automation_id":"a","dry_run":1}`, no},
		{"automations_run", `{"automation_id":"a","wait_seconds":"5"}`, `{"automation_id":"a","wait_seconds":5}`},
	} {
		t.Run(test.tool+" "+test.sent, func(t *testing.T) {
			t.Parallel()
			a, failed := all[test.tool].readArguments(jsontext.Value(test.sent))
			if test.means == no {
				require.NotNil(t, failed)
				assert.Equal(t, codeArguments, failed.code)
				return
			}
			require.Nil(t, failed, "%v", failed)
			assert.JSONEq(t, test.means, string(encode(a.all)))
			if strings.Contains(test.sent, ".50") { // JSONEq compares as floating point
				assert.Contains(t, string(encode(a.all)), ".50")
			}
			// What is read is read again as the same.
			again, failed := all[test.tool].readArguments(encode(a.all))
			require.Nil(t, failed)
			assert.Equal(t, a.all, again.all)
		})
	}
}

// FuzzWhole requires that a number is only taken for an integer if it is that integer exactly.
func TestManyPossibleValuesMakeNoArgumentExpensive(t *testing.T) { //nolint:paralleltest // it counts the allocations of the whole process
	var all []string
	for i := range 600 {
		all = append(all, fmt.Sprintf("City_%d", i))
	}
	d, err := definition.Load(definition.File{Name: "x.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request,
		paths: {/things: {get: {parameters: [{name: zone, in: query, schema: {type: string, enum: [` + strings.Join(all, ", ") + `]}}], responses: {"204": {description: ""}}}}}}`)},
		definition.Options{})
	require.NoError(t, err)
	zone := d.API.Operations()[0].Params[0].Schema
	require.Equal(t, `"City_7"`, string(lenient(zone, jsontext.Value(`"untrusted_City_7"`))))
	unknown := jsontext.Value(`"untrusted_x"`)
	require.Equal(t, string(unknown), string(lenient(zone, unknown)))
	require.Less(t, testing.AllocsPerRun(100, func() { lenient(zone, unknown) }), 50.0)
}

func FuzzWhole(f *testing.F) {
	for _, number := range []string{"3", "3.0", "-0", "0.3e1", "3.0000000000000000001", "1e15", "1e16", "9007199254740991", "9007199254740992", "1e-400", "0e999999999", "0e99999999999999999999"} {
		f.Add(number)
	}
	f.Fuzz(func(t *testing.T, number string) {
		if v := jsontext.Value(number); !v.IsValid() || v.Kind() != jsontext.KindNumber || strings.TrimSpace(number) != number {
			return
		}
		n, ok := whole(number)
		if !ok {
			return
		}
		exact, valid := new(big.Rat).SetString(number)
		if !valid { // the exponent of a zero is too large for the library
			require.Zero(t, n, number)
			return
		}
		require.Zero(t, exact.Cmp(new(big.Rat).SetInt64(n)), "%s is not %d", number, n)
	})
}

// FuzzArguments requires that reading arguments never fails, and that what is read has no more than what was sent: of a text that is not
// changed, every character.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{`{"query":"a"}`, `{"limit":"3"}`, `{"query":7}`, `{"fields":"id"}`, `{"status":null}`, `{"query":"{\"a\":1}"}`} {
		f.Add(seed)
	}
	t := tools(f)["contacts_search"]
	f.Fuzz(func(tb *testing.T, sent string) {
		if v := jsontext.Value(sent); !v.IsValid() || v.Kind() != jsontext.KindBeginObject {
			return
		}
		a, failed := t.readArguments(jsontext.Value(sent))
		if failed != nil {
			return
		}
		var before map[string]any
		require.NoError(tb, stdjson.Unmarshal([]byte(sent), &before))
		for name, value := range a.all {
			require.Contains(tb, before, name)
			require.NotNil(tb, t.arguments.Body.Kinds[0].Schema.Property(name))
			if text, ok := before[name].(string); ok && t.arguments.Body.Kinds[0].Schema.Property(name).Schema.Types&upstream.TypeString != 0 {
				require.Equal(tb, text, plain(value))
			}
		}
		for name, value := range before {
			if value != nil && value != "" {
				require.Contains(tb, a.all, name, "nothing is dropped")
			}
		}
	})
}
