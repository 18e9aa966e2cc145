package oauth_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestAccessCanBeEndedWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	redis := redistest.Start(t)
	s := newServer(t, func(o *oauth.Options) { o.Redis = clientOf(t, redis.Options()) })
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	pending := c.Request(challenge, nil)
	replayed := c.Code(oauthtest.Owner(), challenge, nil)
	stolen := c.Exchange(replayed, verifier, nil)
	require.Equal(t, http.StatusOK, stolen.Status)
	old := c.Connect(oauthtest.Owner(), "")
	access := c.Refresh(old.Refresh, nil) // whose response a client can repeat
	refresh, disconnected := c.Connect(oauthtest.Owner(), ""), c.Connect(oauthtest.Owner(), "")
	before := len(entries(t, s))

	require.NoError(t, redis.SetFull(ctx, true))
	require.True(t, valid(t, s, access.Access))
	assert.Equal(t, http.StatusServiceUnavailable, c.Refresh(access.Refresh, nil).Status)
	assert.Equal(t, http.StatusOK, c.Revoke(access.Access))
	assert.False(t, valid(t, s, access.Access))
	assert.True(t, valid(t, s, old.Access), "the connection goes on")

	assert.Equal(t, http.StatusOK, c.Revoke(refresh.Refresh))
	assert.False(t, valid(t, s, refresh.Access))

	assert.NoError(t, s.Revoke(ctx, grantID(disconnected), oauthtest.Owner()))
	assert.False(t, valid(t, s, disconnected.Access))

	assert.Equal(t, "invalid_grant", c.Exchange(replayed, verifier, nil).Error)
	assert.False(t, valid(t, s, stolen.Access))

	redirect, err := s.Deny(ctx, pending, oauthtest.Owner())
	require.NoError(t, err)
	assert.Equal(t, "access_denied", parse(t, redirect).Query().Get("error"))
	assert.Len(t, entries(t, s), before+4, "all but that of the access token are in the audit log")

	require.NoError(t, redis.SetFull(ctx, false))
	require.Len(t, grants(t, s), 1)
	require.Equal(t, http.StatusOK, c.Refresh(old.Refresh, nil).Status)
	assert.False(t, valid(t, s, access.Access), "repeating the refresh does not restore it")
	_, err = s.Approve(ctx, pending, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	assert.Equal(t, "invalid_grant", c.Refresh(refresh.Refresh, nil).Error)
	assert.Equal(t, "invalid_grant", c.Refresh(disconnected.Refresh, nil).Error)
}
