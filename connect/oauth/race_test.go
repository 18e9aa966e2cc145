package oauth_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

const racers = 20

// atOnce calls use from several goroutines at the same moment.
func atOnce[T any](n int, use func(i int) T) []T {
	results := make([]T, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			results[i] = use(i)
		})
	}
	close(start)
	wg.Wait()
	return results
}

func TestConcurrentRefreshesShareOneSuccessor(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	var successor oauthtest.Tokens
	succeeded := 0
	for _, r := range atOnce(racers, func(int) oauthtest.Tokens { return c.Refresh(tokens.Refresh, nil) }) {
		if r.Status != http.StatusOK {
			require.Equal(t, "too_many_requests", r.Error, "a client discards its tokens for invalid_grant, and these are good")
			continue
		}
		if succeeded++; succeeded == 1 {
			successor = r
		}
		assert.Equal(t, successor.Refresh, r.Refresh)
		assert.Equal(t, successor.Access, r.Access)
	}
	assert.Equal(t, 1+oauth.MaxRepeats, succeeded)
	require.True(t, valid(t, s, successor.Access))
	assert.Equal(t, http.StatusOK, c.Refresh(successor.Refresh, nil).Status, "the connection continues")
	assert.Equal(t, []string{"approved", "started"}, recorded(t, s))
}

func TestPreviousRefreshTokenIsValidForTwoMinutes(t *testing.T) {
	t.Parallel()
	now := newClock(t)
	s := newServer(t, withClock(now))
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:write")

	second := c.Refresh(first.Refresh, nil)
	require.Equal(t, http.StatusOK, second.Status)
	now.Add(oauth.RefreshGrace - 20*time.Second)
	again := c.Refresh(first.Refresh, nil)
	require.Equal(t, http.StatusOK, again.Status, "the client retries after a lost response")
	require.Equal(t, second.Refresh, again.Refresh)
	require.Equal(t, second.Access, again.Access)
	require.LessOrEqual(t, again.ExpiresIn, second.ExpiresIn-int(oauth.RefreshGrace/time.Second)+20)
	narrow := c.Refresh(first.Refresh, url.Values{"scope": {"mcp:read"}})
	require.Equal(t, second.Refresh, narrow.Refresh)
	require.NotEqual(t, second.Access, narrow.Access)
	grant := authenticate(t, s, narrow.Access)
	require.Equal(t, "mcp:read", grant.Scopes.String())

	for range oauth.MaxRepeats - 2 {
		assert.Equal(t, http.StatusOK, c.Refresh(first.Refresh, nil).Status)
	}
	limited := c.Refresh(first.Refresh, nil)
	require.Equal(t, "429 too_many_requests", fmt.Sprint(limited.Status, " ", limited.Error), "the number of repeats is limited")
	third := c.Refresh(second.Refresh, nil)
	require.Equal(t, http.StatusOK, third.Status, "too many repeats do not end the connection")

	// The client continues with the newest tokens.
	now.Add(oauth.AccessLifetime)
	fourth := c.Refresh(third.Refresh, nil)
	require.Equal(t, http.StatusOK, fourth.Status)
	now.Add(oauth.RefreshGrace + time.Millisecond)
	assert.Equal(t, []string{"approved", "started"}, recorded(t, s))
	assert.NotEqual(t, http.StatusOK, clientWithID(t, s, "somebody-else").Refresh(third.Refresh, nil).Status)
	require.True(t, valid(t, s, fourth.Access), "another client's use does not end the connection")
	assert.Equal(t, "invalid_grant", c.Refresh(third.Refresh, nil).Error)
	assert.Equal(t, "invalid_grant", c.Refresh(fourth.Refresh, nil).Error, "the reuse of an old token has ended the connection")
	assert.False(t, valid(t, s, fourth.Access))
	assert.Equal(t, []string{"approved", "started", reused}, recorded(t, s))
}

// After its grace period, the same token would end the connection of all programs that share it.
func TestClientIsNotAskedToRepeatAnOverusedRefreshToken(t *testing.T) {
	t.Parallel()
	now := newClock(t)
	s := newServer(t, withClock(now))
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	second := c.Refresh(first.Refresh, nil)
	for range oauth.MaxRepeats {
		require.Equal(t, http.StatusOK, c.Refresh(first.Refresh, nil).Status)
	}
	for range oauth.RefreshGrace / oauth.RetryAfter {
		w := c.Post("/oauth/token", url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {first.Refresh}, "client_id": {c.ID},
		})
		require.Equal(t, "429 too_many_requests", oauthError(t, w))
		require.Empty(t, w.Header().Get("Retry-After"))
		now.Add(oauth.RetryAfter)
	}
	now.Add(time.Millisecond)
	require.True(t, valid(t, s, second.Access), "what was refused has not ended the connection")
	require.Equal(t, http.StatusOK, c.Refresh(second.Refresh, nil).Status, "the newest token works")
	require.Equal(t, []string{"approved", "started"}, recorded(t, s))
}

func TestRepeatedRefreshDoesNotRestoreRevokedAccessToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:write")
	second := c.Refresh(first.Refresh, nil)
	require.Equal(t, http.StatusOK, c.Revoke(second.Access))
	for _, scope := range []string{"", "contacts:read", ""} {
		again := c.Refresh(first.Refresh, url.Values{"scope": {scope}})
		assert.Equal(t, second.Refresh, again.Refresh)
		assert.False(t, valid(t, s, second.Access))
	}
	third := c.Refresh(second.Refresh, nil)
	require.True(t, valid(t, s, third.Access), "the connection continues")
	for range 3 {
		assert.Equal(t, http.StatusOK, c.Refresh(second.Refresh, nil).Status)
		assert.False(t, valid(t, s, second.Access))
	}
}

func TestAccessTokensPerConnectionAreLimited(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock(t)
	s := newServer(t, withClock(now))
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	all := []string{tokens.Access}
	for range oauth.MaxAccessTokens {
		now.Add(time.Second)
		tokens = c.Refresh(tokens.Refresh, nil)
		require.Equal(t, http.StatusOK, tokens.Status)
		all = append(all, tokens.Access)
	}
	for i, token := range all {
		_, err := s.Authenticate(ctx, token)
		assert.Equal(t, i == 0, err != nil, "only the oldest is invalid")
	}
}
