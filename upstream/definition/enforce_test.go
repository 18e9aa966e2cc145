package definition_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// The option holds for every operation of a data service, and what an operation says itself wins.
func TestOperationsSayHowMuchIsEnforced(t *testing.T) {
	t.Parallel()
	const text = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {
		/plain: {get: {responses: {"204": {description: ""}}}},
		/tenant: {get: {x-gatehouse-enforce: tenant, responses: {"204": {description: ""}}}},
		/members: {get: {x-gatehouse-enforce: members, responses: {"204": {description: ""}}}},
		/all: {get: {x-gatehouse-enforce: all, responses: {"204": {description: ""}}}},
		/own: {get: {x-gatehouse-answer: {a: b}, responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {a: {type: string}}}}}}}}}}}`
	for _, option := range []upstream.Enforcement{upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant} {
		d, err := load(text, definition.Options{Enforce: option})
		require.NoError(t, err)
		enforced := map[string]upstream.Enforcement{}
		for _, op := range d.API.Operations() {
			enforced[op.Path] = op.Enforce
		}
		require.Equal(t, map[string]upstream.Enforcement{
			"/plain": option, "/tenant": upstream.EnforceTenant, "/members": upstream.EnforceMembers, "/all": upstream.EnforceAll, "/own": upstream.EnforceAll,
		}, enforced)
		published, err := d.Published(definition.PublishOptions{})
		require.NoError(t, err)
		require.NotContains(t, string(published), "enforce")
	}
	// The gateway's own answer is held to its schema all the same.
	wrong := `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: none, paths: {/own: {get: {x-gatehouse-answer: {a: 1},
		responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {a: {type: string}}}}}}}}}}}`
	_, err := load(wrong, definition.Options{Enforce: upstream.EnforceTenant})
	require.ErrorContains(t, err, "does not match the schema")
}

func TestPublicContractCanBeObserved(t *testing.T) {
	t.Parallel()
	d, err := definition.PublicPart(nil, []string{"listEvents"}, upstream.EnforceMembers)
	require.NoError(t, err)
	for _, op := range d.API.Operations() {
		require.Equal(t, !op.ByGateway, op.Enforce == upstream.EnforceMembers, op.ID)
	}
	for _, op := range definition.Public().Operations() {
		require.Equal(t, upstream.EnforceAll, op.Enforce, op.ID)
	}
}

func TestStepsOfEnforcementHaveNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"tenant", "members", "all"}, upstream.Enforcements())
	for _, name := range upstream.Enforcements() {
		var e upstream.Enforcement
		require.NoError(t, e.UnmarshalText([]byte(name)))
		require.Equal(t, name, e.String())
	}
	var e upstream.Enforcement
	require.Equal(t, "all", e.String(), "the zero value is the strictest")
	require.EqualError(t, e.UnmarshalText([]byte("Tenant")), `invalid enforce "Tenant": must be one of tenant, members, all`)
	require.Equal(t, upstream.EnforceAll, e)
}
