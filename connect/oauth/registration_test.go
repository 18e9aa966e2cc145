package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/oauthtest"
)

func postRegistration(c *oauthtest.Client, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/oauth/register", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	return c.Do(r)
}

// register registers a client and returns its id.
func register(t testing.TB, c *oauthtest.Client, body string) string {
	t.Helper()
	w := postRegistration(c, body)
	require.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
	var answer struct {
		ClientID string `json:"client_id"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer.ClientID
}
