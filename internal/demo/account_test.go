package demo

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// signIn tries an address and a password as the gateway does: for no account yet.
func signIn(c *as, email, password string) (int, map[string]any) {
	c.Helper()
	body := asJSON(c, map[string]string{"email": email, "password": password})
	w := c.do("POST", "sign-in", body, HeaderBusinessID, noBusiness, HeaderAccountID, "", HeaderIdempotencyKey, "")
	return w.Code, decode(c, w)
}

func TestPeopleSignInWithTheirOwnPasswordOnly(t *testing.T) {
	t.Parallel()
	c := caller(t, shared, owner())
	account := func(id string) (int, map[string]any) {
		w := c.do("GET", "accounts/"+id, "", HeaderBusinessID, noBusiness, HeaderAccountID, "")
		return w.Code, decode(t, w)
	}
	status, answer := signIn(c, "  "+strings.ToUpper(owner().Email)+" ", owner().Password)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, map[string]any{
		"id": owner().ID, "email": owner().Email, "name": owner().Name, "role": owner().Role,
		"business": map[string]any{"id": active()[0].ID, "name": active()[0].Name, "slug": active()[0].Slug, "time_zone": "America/Chicago"},
	}, answer["account"])
	status, again := account(owner().ID)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, answer, again)

	closed := Accounts()[4]
	require.Equal(t, inactive().ID, closed.BusinessID)
	for _, attempt := range [][2]string{
		{owner().Email, member().Password},
		{owner().Email, strings.ToUpper(owner().Password)},
		{owner().Email, owner().Password + " "},
		{"nobody@fernhollow.example.com", owner().Password},
		{"' OR 1=1 --", "x"},
		{"%", "x"},
		{closed.Email, closed.Password},
	} {
		status, answer := signIn(c, attempt[0], attempt[1])
		assert.Equal(t, http.StatusUnauthorized, status)
		assert.Equal(t, map[string]any{"error": "The e-mail address or the password is wrong.", "code": "INVALID_CREDENTIALS"}, answer)
	}
	for _, id := range []string{closed.ID, "nobody"} {
		status, _ := account(id)
		assert.Equal(t, http.StatusNotFound, status)
	}
}

func TestADisabledAccountCannotSignIn(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	execute(t, s, "UPDATE accounts SET status = 'disabled' WHERE id = ?", owner().ID)
	status, answer := signIn(c, owner().Email, owner().Password)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, "INVALID_CREDENTIALS", answer["code"])
	c.notFound("GET", "accounts/"+owner().ID, "")
	c.rejected(http.StatusForbidden, "UNKNOWN_ACCOUNT", "GET", "business", "")
	caller(t, s, member()).get("business")
}

func TestUnknownAddressesCostTheSameWork(t *testing.T) {
	t.Parallel()
	p := newPasswords()
	hash := hashPassword("right")
	for _, c := range []struct {
		hash, password string
		want           bool
	}{{hash, "right", true}, {hash, "wrong", false}, {"", "right", false}, {"", "", false}} {
		right, err := p.check(t.Context(), c.hash, c.password)
		require.NoError(t, err)
		assert.Equal(t, c.want, right)
	}
	// An unknown address waits for a slot like any other, as the tag is computed for it too.
	for range passwordChecks {
		p.slots <- struct{}{}
	}
	p.patience = time.Millisecond
	for _, h := range []string{"", hash} {
		_, err := p.check(t.Context(), h, "right")
		var busy *httpError
		require.ErrorAs(t, err, &busy)
		assert.Equal(t, http.StatusTooManyRequests, busy.Status)
		assert.Positive(t, busy.RetryAfter)
	}
	p.patience = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.check(ctx, hash, "right")
	require.ErrorIs(t, err, context.Canceled)
}

func TestPasswordsAreStoredAsSaltedArgon2id(t *testing.T) {
	t.Parallel()
	salts := map[string]bool{}
	for _, h := range texts(t, shared, "SELECT password_hash FROM accounts") {
		require.Regexp(t, `^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, h)
		salts[strings.Split(h, "$")[4]] = true
	}
	require.Len(t, salts, len(Accounts()), fmt.Sprint(salts))
}
