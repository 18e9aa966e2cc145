package e2e_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
)

// A gateway with a wrong clock accepts only requests signed by its clock; errors contain its clock. Nothing else depends on the time of
// day: limited callers stay limited, and everything works again when the clock is right.
func TestFaultGatewayClockStepped(t *testing.T) {
	t.Parallel()
	const target = "/api/v1/me"
	scale := chaosScale(t)
	w := newEnvironment(t, load.Data())
	callers := w.addKeys(t, 2*scale.rate, 5)
	spent, greedy := w.addKeys(t, 2*windowAttempts, 1), w.addKeys(t, 1, 1)
	g := w.gateway(t)
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: callers, Rate: scale.rate, Addresses: 100,
		Allow: func(s *load.Sample) bool {
			return successOrLimited(s) || s.Code == "REQUEST_EXPIRED" && s.During("ahead", "back")
		},
	})
	l.Also("greedy", slices.Repeat(greedy, 100), load.KeyLimit, signedTargets()...) // from all addresses in turn
	l.Run(scale.before)
	for i, step := range []struct {
		phase string
		by    time.Duration
	}{{"ahead", 10 * time.Minute}, {"back", -10 * time.Minute}} {
		withinWindow(t, func(attempt int) func() {
			over := spent[i*windowAttempts+attempt].Caller
			if attempt > 0 {
				g.StepClock(t, 0)
				l.Phase("right")
			}
			requireServed(t, g, over, load.KeyLimit)
			l.Phase(step.phase)
			g.StepClock(t, step.by)
			a := signedGet(t, g, over, target, time.Now().Add(step.by))
			return func() { requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED") }
		})
		requireJSON(t, signedGet(t, g, w.other, target, time.Now().Add(step.by)))
		p := requireProblem(t, w.acme.Get(t, g.URL, target), http.StatusUnauthorized, "REQUEST_EXPIRED")
		require.InDelta(t, time.Now().Add(step.by).Unix(), p.ServerTime, 60)
		l.Run(scale.outage)
		requireCheck(t, g, "limits", true)
		g.StepClock(t, 0)
		l.Phase("right")
		requireJSON(t, w.acme.Get(t, g.URL, target))
		l.Run(scale.after)
	}
	r := l.Stop()
	require.Zero(t, r.OverLimit())
	r.Figure(t)
}

// The page says when the old private key expires. The gateway's clock, and the timestamps that callers sign, are set to just before and
// just after that.
func TestRotatedPrivateKeyExpiresAsThePageSays(t *testing.T) {
	t.Parallel()
	const target = "/api/v1/me"
	w, g := connectedTo(t, nil, "")
	owner := newBrowser(t, g.URL)
	owner.signIn(accountOf(t, w.acmeID, demo.RoleOwner))
	old := keysOn(t, owner.send(owner.open("/settings/api"), "action", url.Values{"kind": {"live"}}))
	rotate := owner.open("/settings/api?" + url.Values{"rotate": {old.PublicKey}}.Encode())
	sent := time.Now()
	done := owner.send(rotate, "grace", url.Values{"grace": {"24h"}})
	rotated := keysOn(t, done)
	said := regexp.MustCompile(`old private key works until <time datetime="([^"]+)"`).FindStringSubmatch(done.Text)
	require.NotNil(t, said, done.Text)
	ends, err := time.Parse(time.RFC3339, said[1])
	require.NoError(t, err)
	require.WithinRange(t, ends.Add(-24*time.Hour), sent.Add(-time.Second), time.Now().Add(time.Second))
	for _, moment := range []struct {
		at     time.Time
		status int // with the old private key
	}{{ends.Add(-20 * time.Second), http.StatusOK}, {ends.Add(2 * time.Second), http.StatusUnauthorized}} {
		require.Eventually(t, func() bool { // on a busy machine, the moment may have passed before the requests arrive
			g.StepClock(t, time.Until(moment.at).Round(time.Second))
			return signedGet(t, g, old, target, moment.at).Status == moment.status && signedGet(t, g, rotated, target, moment.at).Status == http.StatusOK
		}, patience, time.Second, "%s", moment.at)
	}
}

// signedGet sends a GET that was signed at a given time.
func signedGet(t *testing.T, g *gatewaytest.Gateway, c gatewaytest.Caller, target string, at time.Time) gatewaytest.Response {
	t.Helper()
	a, err := c.Send(t.Context(), http.MethodGet, g.URL, target, headerOf(signedAt(c, at, http.MethodGet, target, "")), nil)
	require.NoError(t, err)
	return a
}
