package authsigner_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

func TestDecodeCredential(t *testing.T) {
	t.Parallel()
	cred, err := authsigner.DecodeCredential(testKey, map[string]any{
		"private_key":          testSecret,
		"previous_private_key": testPreviousSecret,
		"previous_expires_at":  "2025-10-09T10:53:20.5+02:00",
		"business_id":          "42",
		"business_name":        "Zoë's Bakery",
		"business_slug":        "zoes-bakery",
		"status":               "inactive",
		"limit":                json.Number("120"),
		"name":                 "Till",
		"created_at":           "2025-10-01T00:00:00+02:00",
		"created_by":           "zoe",
		"expires_at":           "2027-01-01T00:00:00Z",
		"resources":            []any{"jobs", "contacts"},
		"write":                "true",
		"note":                 "unknown fields are ignored",
		"tags":                 []any{"a", 1, nil},
	})
	require.NoError(t, err)
	want := authsigner.Credential{
		PublicKey: testKey, PrivateKey: testSecret, PreviousPrivateKey: testPreviousSecret,
		PreviousExpiresAt: time.Date(2025, 10, 9, 8, 53, 20, 500_000_000, time.UTC),
		BusinessID:        "42", BusinessName: "Zoë's Bakery", BusinessSlug: "zoes-bakery", Status: authsigner.StatusInactive,
		Limit: 120, Name: "Till", CreatedAt: time.Date(2025, 9, 30, 22, 0, 0, 0, time.UTC), CreatedBy: "zoe",
		ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Resources: []string{"jobs", "contacts"}, Write: true,
	}
	require.EqualExportedValues(t, &want, cred)
}

func TestResourcesOfARecordLimitTheKey(t *testing.T) {
	t.Parallel()
	for what, resources := range map[string]any{
		"a JSON array": []any{"jobs", "contacts"}, "a Go slice": []string{"jobs", "contacts"}, "text with commas": "jobs, contacts",
	} {
		cred := newCredential(map[string]any{"resources": resources})
		assert.Equal(t, []string{"jobs", "contacts"}, cred.Resources, what)
		require.True(t, cred.MayCall("", "jobs"), what)
		assert.False(t, cred.MayCall("", "invoices"), what)
	}
	require.True(t, newCredential(map[string]any{"resources": nil}).MayCall("", "invoices"))
}

// Keys without resources, and those of records from before APIs had names, gain nothing when a named API is added.
func TestNamedAPINeedsAnEntry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		resources any
		api       string
		may       []string // of orders, refunds
	}{
		{nil, "", []string{"orders", "refunds"}},
		{nil, "shop", nil},
		{"orders", "", []string{"orders"}},
		{"orders,refunds", "shop", nil},
		{"shop", "shop", []string{"orders", "refunds"}},
		{"shop", "", nil},
		{"shop/orders", "shop", []string{"orders"}},
		{"shop/orders", "", nil},
		{"shop/orders,refunds", "", []string{"refunds"}},
		{"Shop,sho,shop/,/orders,shop/orders/", "shop", nil},
	} {
		cred := newCredential(map[string]any{"resources": test.resources})
		var may []string
		for _, resource := range []string{"orders", "refunds"} {
			if cred.MayCall(test.api, resource) {
				may = append(may, resource)
			}
		}
		assert.Equal(t, test.may, may, "%v for API %q", test.resources, test.api)
	}
}

func TestOnlyTrueAllowsWrites(t *testing.T) {
	t.Parallel()
	for _, yes := range []any{true, "true"} {
		require.True(t, newCredential(map[string]any{"write": yes}).Write)
	}
	for _, no := range []any{nil, "", false, "false"} {
		require.False(t, newCredential(map[string]any{"write": no}).Write)
	}
	for _, invalid := range []any{"TRUE", "yes", "1", 1, json.Number("1"), []any{true}, map[string]any{}} {
		_, err := authsigner.DecodeCredential(testKey, newRecord(map[string]any{"write": invalid}))
		require.ErrorIs(t, err, authsigner.ErrMalformedCredential, "%v", invalid)
		require.ErrorContains(t, err, "write must be true or false")
	}
}

func TestOptionalFieldsMayBeAbsentOrEmpty(t *testing.T) {
	t.Parallel()
	for _, absent := range []map[string]any{
		nil,
		{"previous_private_key": nil, "previous_expires_at": nil, "limit": nil},
		{"previous_private_key": "", "previous_expires_at": "", "limit": ""},
		{"name": "", "created_at": "", "created_by": "", "expires_at": nil, "resources": nil, "write": nil},
		{"previous_expires_at": "2025-10-09T08:53:20Z"}, // left over from a secret that was removed
	} {
		cred := newCredential(absent)
		assert.Empty(t, cred.PreviousPrivateKey.Reveal())
		assert.Zero(t, cred.PreviousExpiresAt)
		assert.Zero(t, cred.Limit)
		assert.Equal(t, authsigner.StatusActive, cred.Status)
		assert.False(t, cred.Expired(time.Now()))
		require.True(t, cred.MayCall("", "jobs"))
		require.Len(t, cred.Record(), 6, "no optional field but the format")
	}
}

func TestLimitIsDecodedFromEveryNumericType(t *testing.T) {
	t.Parallel()
	for _, limit := range []any{json.Number("75"), "75", 75, int64(75), float64(75), "0075"} {
		assert.Equal(t, 75, newCredential(map[string]any{"limit": limit}).Limit, "%T", limit)
	}
	require.Equal(t, math.MaxInt32, newCredential(map[string]any{"limit": float64(math.MaxInt32)}).Limit)
}

// The error says which field is wrong, but not its value.
func TestMalformedRecordIsRejectedWithoutItsValue(t *testing.T) {
	t.Parallel()
	const canary = "canary-5d1f"
	previous := func(key, end any) map[string]any {
		return map[string]any{"previous_private_key": key, "previous_expires_at": end}
	}
	type fields = map[string]any
	for what, test := range map[string]struct {
		field  string
		change fields
	}{
		"no secret":                          {"private_key", fields{"private_key": nil}},
		"empty secret":                       {"private_key", fields{"private_key": ""}},
		"secret of blanks":                   {"private_key", fields{"private_key": "   "}},
		"secret with a line feed":            {"private_key", fields{"private_key": canary + "\n"}},
		"secret with a leading space":        {"private_key", fields{"private_key": " " + canary}},
		"secret with a zero byte":            {"private_key", fields{"private_key": canary + "\x00"}},
		"secret of zero bytes":               {"private_key", fields{"private_key": "\x00\x00"}},
		"secret of invalid UTF-8":            {"private_key", fields{"private_key": canary + "\xff"}},
		"secret far too long":                {"private_key", fields{"private_key": strings.Repeat(canary, 1000)}},
		"secret that is its own placeholder": {"private_key", fields{"private_key": "[redacted]"}},
		"secret as a number":                 {"private_key", fields{"private_key": json.Number("12345678")}},
		"secret as bytes":                    {"private_key", fields{"private_key": []byte(canary)}},
		"secret as a list":                   {"private_key", fields{"private_key": []any{canary}}},
		"secret as an object":                {"private_key", fields{"private_key": fields{"value": canary}}},
		"previous secret as a boolean":       {"previous_private_key", previous(true, "2025-10-09T08:53:20Z")},
		"previous secret with a line feed":   {"previous_private_key", previous(canary+"\n", "2025-10-09T08:53:20Z")},
		"previous secret without an end":     {"previous_expires_at", previous(canary, nil)},
		"previous secret with an empty end":  {"previous_expires_at", previous(canary, "")},
		"end that is a date":                 {"previous_expires_at", previous(canary, "2025-10-09")},
		"end that is text":                   {"previous_expires_at", previous(canary, canary)},
		"end as a number":                    {"previous_expires_at", previous(canary, json.Number("1760000000"))},
		"end that is nonsense, by itself":    {"previous_expires_at", fields{"previous_expires_at": canary}},
		"zero end":                           {"previous_expires_at", previous(canary, "0001-01-01T00:00:00Z")},
		"no business id":                     {"business_id", fields{"business_id": nil}},
		"empty business id":                  {"business_id", fields{"business_id": ""}},
		"business id as a number":            {"business_id", fields{"business_id": json.Number("7")}},
		"business id with a line feed":       {"business_id", fields{"business_id": canary + "\r\nX-Admin: 1"}},
		"the business id of nobody":          {"business_id", fields{"business_id": "-"}},
		"business id with a space":           {"business_id", fields{"business_id": canary + " 1"}},
		"business id outside ASCII":          {"business_id", fields{"business_id": canary + "é"}},
		"business id far too long":           {"business_id", fields{"business_id": strings.Repeat("1", 256)}},
		"no business name":                   {"business_name", fields{"business_name": nil}},
		"business name of blanks":            {"business_name", fields{"business_name": "  "}},
		"business name with a line feed":     {"business_name", fields{"business_name": canary + "\n"}},
		"business name of invalid UTF-8":     {"business_name", fields{"business_name": canary + "\xff"}},
		"business name far too long":         {"business_name", fields{"business_name": strings.Repeat("n", 1025)}},
		"no business slug":                   {"business_slug", fields{"business_slug": nil}},
		"business slug with a space":         {"business_slug", fields{"business_slug": canary + " s"}},
		"no status":                          {"status", fields{"status": nil}},
		"empty status":                       {"status", fields{"status": ""}},
		"status in upper case":               {"status", fields{"status": "ACTIVE"}},
		"status that is none":                {"status", fields{"status": canary}},
		"status as a boolean":                {"status", fields{"status": true}},
		"limit of zero":                      {"limit", fields{"limit": json.Number("0")}},
		"negative limit":                     {"limit", fields{"limit": json.Number("-1")}},
		"negative limit as an int":           {"limit", fields{"limit": -1}},
		"fractional limit":                   {"limit", fields{"limit": json.Number("1.5")}},
		"fractional limit as a float":        {"limit", fields{"limit": 1.5}},
		"limit that is not a number":         {"limit", fields{"limit": math.NaN()}},
		"infinite limit":                     {"limit", fields{"limit": math.Inf(1)}},
		"limit with an exponent":             {"limit", fields{"limit": json.Number("1e3")}},
		"limit with a sign":                  {"limit", fields{"limit": "+60"}},
		"limit with a space":                 {"limit", fields{"limit": " 60"}},
		"limit in other digits":              {"limit", fields{"limit": "٦٠"}},
		"limit past 31 bits":                 {"limit", fields{"limit": json.Number("2147483648")}},
		"limit far past 64 bits":             {"limit", fields{"limit": json.Number("99999999999999999999")}},
		"limit far past 64 bits as a float":  {"limit", fields{"limit": 1e300}},
		"limit that is a word":               {"limit", fields{"limit": canary}},
		"limit as a boolean":                 {"limit", fields{"limit": true}},
		"limit as a list":                    {"limit", fields{"limit": []any{60}}},
		"name with a line feed":              {"name", fields{"name": canary + "\n"}},
		"name as a number":                   {"name", fields{"name": 1}},
		"creator in invalid UTF-8":           {"created_by", fields{"created_by": canary + "\xff"}},
		"creation that is a date":            {"created_at", fields{"created_at": "2025-10-09"}},
		"expiry without a time":              {"expires_at", fields{"expires_at": "2025-10-09"}},
		"expiry in words":                    {"expires_at", fields{"expires_at": canary}},
		"expiry as a number":                 {"expires_at", fields{"expires_at": json.Number("1760000000")}},
		"empty expiry":                       {"expires_at", fields{"expires_at": ""}},
		"empty text of resources":            {"resources", fields{"resources": ""}},
		"zero expiry":                        {"expires_at", fields{"expires_at": "0001-01-01T00:00:00Z"}},
		"empty list of resources":            {"resources", fields{"resources": []any{}}},
		"empty slice of resources":           {"resources", fields{"resources": []string{}}},
		"resource without a name":            {"resources", fields{"resources": []any{""}}},
		"resources of commas":                {"resources", fields{"resources": ","}},
		"resource with a comma":              {"resources", fields{"resources": []any{"jobs," + canary}}},
		"resource as a number":               {"resources", fields{"resources": []any{"jobs", 1}}},
		"resources as a boolean":             {"resources", fields{"resources": false}},
		"later format":                       {"format is that of a later version", fields{"format": json.Number("2")}},
		"later format, written by hand":      {"format is that of a later version", fields{"format": "2", "private_key": nil}},
		"format of zero":                     {"format must be", fields{"format": json.Number("0")}},
		"format that is a word":              {"format must be", fields{"format": canary}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cred, err := authsigner.DecodeCredential(testKey, newRecord(test.change))
			require.Nil(t, cred)
			require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
			require.NotErrorIs(t, err, authsigner.ErrUnknownKey)
			assert.Contains(t, err.Error(), test.field)
			assert.NotContains(t, err.Error(), canary)
			assert.NotContains(t, err.Error(), testSecret)
		})
	}
	for _, key := range invalidPublicKeys() {
		_, err := authsigner.DecodeCredential(key, newRecord(nil))
		require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
	}
	_, err := authsigner.DecodeCredential(testKey, nil)
	require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
}

func TestRecordSurvivesAStore(t *testing.T) {
	t.Parallel()
	for _, fields := range []map[string]any{
		nil,
		{"limit": 600, "status": "inactive"},
		{"previous_private_key": testPreviousSecret, "previous_expires_at": "2026-01-02T03:04:05.678901234+01:00"},
		everyOptionalField(),
	} {
		cred := newCredential(fields)
		require.NoError(t, cred.Validate())
		stored, err := json.Marshal(cred.Record())
		require.NoError(t, err)
		for _, useNumber := range []bool{true, false} {
			decoder := json.NewDecoder(bytes.NewReader(stored))
			if useNumber {
				decoder.UseNumber()
			}
			var data map[string]any
			require.NoError(t, decoder.Decode(&data))
			again, err := authsigner.DecodeCredential(testKey, data)
			require.NoError(t, err)
			assert.Equal(t, cred.Record(), again.Record())
		}
	}
}

// everyOptionalField returns the fields of a record that may be absent, except those of a previous private key.
func everyOptionalField() map[string]any {
	return map[string]any{
		"limit": 600, "name": "Till", "created_at": "2025-10-09T08:53:20Z", "created_by": "zoe",
		"expires_at": "2026-01-02T03:04:05.678901234+01:00", "resources": []any{"jobs", "contacts"},
		"write": true,
	}
}

func TestValidateRejectsWhatDecodeRejects(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*authsigner.Credential){
		func(c *authsigner.Credential) { c.PublicKey = "../12345678" },
		func(c *authsigner.Credential) { c.PrivateKey = "" },
		func(c *authsigner.Credential) { c.Limit = -1 },
		func(c *authsigner.Credential) { c.Limit = math.MaxInt32; c.Limit++ },
		func(c *authsigner.Credential) { c.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		func(c *authsigner.Credential) { c.Resources = []string{} },
	} {
		cred := newCredential(nil)
		require.NoError(t, cred.Validate())
		change(cred)
		require.ErrorIs(t, cred.Validate(), authsigner.ErrMalformedCredential)
	}
}

func TestValidPublicKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"pk_live_0123456789", "pk_test_abcdefgh", "12345678", "--------", "________", "aZ09_-aZ", "sk-12345", "SK_12345", strings.Repeat("k", 128),
	} {
		assert.True(t, authsigner.ValidPublicKey(key), key)
	}
	for _, key := range invalidPublicKeys() {
		assert.False(t, authsigner.ValidPublicKey(key), "%q", key)
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	secret := authsigner.Secret("hunter2-hunter2")
	cred := newCredential(map[string]any{
		"private_key": secret.Reveal(), "previous_private_key": secret.Reveal(), "previous_expires_at": "2100-01-01T00:00:00Z",
	})
	_, err := newVerifier(cred).Verify(get(secret), meTarget)
	require.NoError(t, err) // now there are HMAC states, which must not be printed either
	transport := &authsigner.Transport{PublicKey: testKey, PrivateKey: secret}
	var shown bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%T %[1]v", "%20s", "%-3.2s", "%U", "%t"} {
		for _, value := range []any{
			secret, &secret, cred,
			[]*authsigner.Credential{cred},
			struct{ C *authsigner.Credential }{cred},
			[]authsigner.Secret{secret},
			map[authsigner.Secret]authsigner.Secret{secret: secret},
			transport, *transport,
			struct{ S authsigner.Secret }{secret},
			fmt.Errorf("%v", secret), any(secret),
		} {
			fmt.Fprintf(&shown, verb+"\n", value)
		}
	}
	for _, logger := range []*slog.Logger{
		slog.New(slog.NewTextHandler(&shown, nil)), slog.New(slog.NewJSONHandler(&shown, nil)),
	} {
		logger.Info("a", "secret", secret, "credential", cred, "list", []authsigner.Secret{secret})
	}
	for format, encode := range map[string]func(any) ([]byte, error){"json": json.Marshal, "xml": xml.Marshal} {
		for _, value := range []any{secret, &secret, cred} {
			encoded, err := encode(value)
			require.NoError(t, err, format)
			shown.Write(encoded)
		}
	}
	shown.WriteString(secret.String() + secret.LogValue().String())

	for _, form := range []string{"hunter2", "68756e74657232", "68756E74657232", "68 75 6e", "104 117", "U+0068"} {
		assert.NotContains(t, shown.String(), form)
	}
	assert.Contains(t, shown.String(), "[redacted]")
	assert.Contains(t, shown.String(), testKey, "the rest of a credential may be printed")
	assert.NotContains(t, shown.String(), "resident", "printing the HMAC states would be a data race")
	assert.Equal(t, "hunter2-hunter2", secret.Reveal())
}
