package definition_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

func TestTenantHoldsInMembersThatTwoSchemasDeclare(t *testing.T) {
	t.Parallel()
	d, err := load(`
openapi: 3.1.0
info: {title: x, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: business_id
paths:
  /things:
    get:
      responses:
        "200":
          description: x
          content:
            application/json:
              schema:
                allOf:
                  - type: object
                    properties:
                      business_id: {type: string, x-gatehouse-internal: true}
                      child: {type: object, properties: {business_id: {type: string, x-gatehouse-internal: true}, x: {type: string}}}
                      list: {type: array, items: {type: object, properties: {business_id: {type: string}}}}
                      one: {oneOf: [{type: object, required: [business_id], properties: {business_id: {type: string}}}, {type: "null"}]}
                  - type: object
                    properties:
                      child: {type: object, properties: {y: {type: string}}}
                      list: {type: array, items: {type: object, properties: {z: {type: string}}}}
                      one: {type: [object, "null"], properties: {q: {type: string}}}
`, definition.Options{})
	require.NoError(t, err)
	op := d.API.Operations()[0]
	for body, want := range map[string]string{
		`{"business_id":"a","child":{"business_id":"a","x":"1","y":"2"},"list":[{"business_id":"a","z":"1"}],"one":{"business_id":"a","q":"1"}}`: `{"child":{"x":"1","y":"2"},"list":[{"business_id":"a","z":"1"}],"one":{"business_id":"a","q":"1"}}`,
		`{"business_id":"a","child":{"business_id":"b","x":"1"}}`:                                                                                "",
		`{"business_id":"a","child":{"x":"1"}}`:                                                                                                  "",
		`{"business_id":"a","list":[{"business_id":"b","z":"1"}]}`:                                                                               "",
		`{"business_id":"a","one":{"business_id":"b","q":"1"}}`:                                                                                  "",
		`{"business_id":"a","one":null}`:                                                                                                         `{"one":null}`,
	} {
		var out bytes.Buffer
		_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], upstream.Query{}, "a", []byte(body))
		require.Equal(t, want, out.String(), body)
		require.Equal(t, want == "", err != nil)
	}
}

func TestInternalMemberMayLeadBackToItsObject(t *testing.T) {
	t.Parallel()
	d, err := load(`
openapi: 3.1.0
info: {title: x, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
paths:
  /nodes:
    get:
      responses:
        "200": {description: x, content: {application/json: {schema: {$ref: "#/components/schemas/Node"}}}}
components:
  schemas:
    Node:
      type: object
      properties:
        id: {type: string}
        next: {$ref: "#/components/schemas/Node", x-gatehouse-internal: true}
`, definition.Options{})
	require.NoError(t, err)
	op := d.API.Operations()[0]
	for body, valid := range map[string]bool{
		`{"id":"1","next":{"id":"2","next":null}}`: true,
		`{"id":"1","next":null}`:                   true,
		`{"id":"1","next":"2"}`:                    false,
	} {
		var out bytes.Buffer
		_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], upstream.Query{}, "a", []byte(body))
		require.Equal(t, valid, err == nil, body)
		if valid {
			require.Equal(t, `{"id":"1"}`, out.String())
		}
	}
}
