package e2e_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// A gateway whose clock is wrong takes what was signed by its clock and refuses the rest, saying what its clock is. Nothing
// else depends on the time of day: whoever is over a limit stays so, and all is well again when the clock is.
func TestFaultTheGatewaysOwnClockIsSteppedByTenMinutesBothWays(t *testing.T) {
	t.Parallel()
	const target = "/api/v1/me"
	scale := chaosScale(t)
	w := newLoadWorld(t)
	callers := w.addKeys(t, 2*scale.rate, 5)
	spent := w.addKeys(t, 2, 1)
	g := gatewaytest.Start(t, w.options("", ""))
	l := startLoad(t, loadOptions{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate, Addresses: 100,
		May: func(s *sample) string {
			if s.Status == http.StatusOK || s.Code == "REQUEST_EXPIRED" && s.during("ahead", "back") {
				return ""
			}
			return "only 200 is allowed, and REQUEST_EXPIRED while the clock is wrong"
		},
	})
	l.during(scale.before)
	for i, step := range []struct {
		phase string
		by    time.Duration
	}{{"ahead", 10 * time.Minute}, {"back", -10 * time.Minute}} {
		over := spent[i].Caller
		for range keyLimit {
			require.Equal(t, http.StatusOK, over.Get(t, g.URL, target).Status)
		}
		l.phase(step.phase)
		g.StepClock(t, step.by)
		requireJSON(t, signedGet(t, g, w.other, target, time.Now().Add(step.by)))
		requireProblem(t, signedGet(t, g, over, target, time.Now().Add(step.by)), http.StatusTooManyRequests, "RATE_LIMITED")
		p := requireProblem(t, w.acme.Get(t, g.URL, target), http.StatusUnauthorized, "REQUEST_EXPIRED")
		require.InDelta(t, time.Now().Add(step.by).Unix(), p.ServerTime, 60)
		l.during(scale.away)
		requireLimitsShared(t, g)
		g.StepClock(t, 0)
		l.phase("right")
		requireJSON(t, w.acme.Get(t, g.URL, target))
		l.during(scale.back)
	}
	r := l.stop()
	require.Zero(t, r.overLimit())
	r.figure(t)
}

// The page names the moment at which the old private key ends. Two clocks are set to just before and just after it: the
// gateway's, and the caller's, which signs by the same.
func TestARotatedKeysOldPrivateKeyEndsWhenThePageSaid(t *testing.T) {
	t.Parallel()
	const target = "/api/v1/me"
	w, g := connected(t, "")
	owner := newPerson(t, g.URL)
	owner.signIn(accountOf(t, w.acmeID, demo.RoleOwner))
	old := keysOn(t, owner.send(owner.open("/settings/api"), "action", url.Values{"kind": {"live"}}))
	rotate := owner.open("/settings/api?" + url.Values{"rotate": {old.PublicKey}}.Encode())
	done := owner.send(rotate, "grace", url.Values{"grace": {"24h"}})
	rotated := keysOn(t, done)
	said := regexp.MustCompile(`old private key works until <time datetime="([^"]+)"`).FindStringSubmatch(done.Text)
	require.NotNil(t, said, done.Text)
	ends, err := time.Parse(time.RFC3339, said[1])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), ends, time.Minute)
	for _, moment := range []struct {
		at     time.Time
		status int // of the old one
	}{{ends.Add(-20 * time.Second), http.StatusOK}, {ends.Add(2 * time.Second), http.StatusUnauthorized}} {
		g.StepClock(t, time.Until(moment.at).Round(time.Second))
		require.Equal(t, moment.status, signedGet(t, g, old, target, moment.at).Status, moment.at)
		require.Equal(t, http.StatusOK, signedGet(t, g, rotated, target, moment.at).Status, moment.at)
	}
}

// signedGet is a GET that was signed at a moment.
func signedGet(t *testing.T, g *gatewaytest.Gateway, c gatewaytest.Caller, target string, at time.Time) gatewaytest.Answer {
	t.Helper()
	a, err := c.Send(t.Context(), http.MethodGet, g.URL, target, http.Header{
		authsigner.HeaderPublicKey: {c.PublicKey},
		authsigner.HeaderTimestamp: {strconv.FormatInt(at.Unix(), 10)},
		authsigner.HeaderSignature: {authsigner.Sign(c.PrivateKey, at.Unix(), http.MethodGet, target, nil)},
	}, nil)
	require.NoError(t, err)
	return a
}
