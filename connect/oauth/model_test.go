package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// rules is what OAuth 2.1 and docs/connect.md say of one connection.
type rules struct {
	decision string // "", "approved" or "denied"
	state    string // "", "code", "live" or "ended"
	redeemed bool
	recorded bool   // that it ended, which a code that ran out is not
	current  int    // generation of the refresh token; the code's is 0
	late     bool   // the grace of the refresh token before is over
	repeats  int    // of the refresh token before
	revoked  uint64 // a bit for each generation's access token
}

// act is something that is done to a connection, with the tokens of a generation.
type act struct {
	connection int
	name       string
	generation int
}

func (a act) String() string { return fmt.Sprintf("%d %s %d", a.connection, a.name, a.generation) }

func (r *rules) end() {
	r.state, r.recorded = "ended", true
}

// apply does what the rules say, and returns what is told.
func (r *rules) apply(a act) string {
	switch a.name {
	case "approve":
		switch {
		case r.decision == "":
			r.decision, r.state = "approved", "code"
			return "decided"
		case r.decision == "approved" && r.state == "code":
			return "decided before"
		}
		return "over"
	case "deny":
		switch r.decision {
		case "":
			r.decision = "denied"
			return "decided"
		case "denied":
			return "decided before"
		}
		return "over"
	case "redeem":
		switch r.state {
		case "code":
			r.state, r.redeemed = "live", true
			return "tokens"
		case "live":
			r.end() // a replay
		}
		return "rejected"
	case "refresh":
		switch {
		case r.state != "live":
			return "rejected"
		case a.generation == r.current:
			r.current, r.late, r.repeats = r.current+1, false, 0
			return "tokens"
		case a.generation == r.current-1 && !r.late && r.repeats < oauth.MaxRepeats:
			r.repeats++
			return "tokens"
		case a.generation < r.current-1 || r.late:
			r.end() // a reuse
		}
		return "rejected"
	case "disconnect":
		if r.state != "live" && r.state != "code" {
			return "over"
		}
		r.end()
		return "done"
	case "give back":
		if r.state == "live" {
			r.end()
		}
		return "done"
	case "give access back":
		if r.state == "live" {
			r.revoked |= 1 << a.generation
		}
		return "done"
	case "use":
		if r.state == "live" && r.revoked&(1<<a.generation) == 0 {
			return "done"
		}
		return "rejected"
	case "let the grace pass":
		r.late = true
	case "let the code run out":
		r.state = "ended"
	}
	return ""
}

// turns has one of several goroutines run at a time, from one command of Redis to the next.
type turns struct {
	random  *rand.Rand
	arrived chan *turn
}

type turn struct {
	turns *turns
	index int
	goOn  chan struct{}
	done  bool
}

type turnKey struct{}

func (t *turn) wait() {
	t.turns.arrived <- t
	<-t.goOn
}

// run runs functions at the same time, in an order that follows from the seed.
func (t *turns) run(all []func(ctx context.Context)) {
	var waiting []*turn
	for i, f := range all {
		one := &turn{turns: t, index: i, goOn: make(chan struct{})}
		go func() {
			one.wait()
			f(context.WithValue(context.Background(), turnKey{}, one))
			one.done = true
			t.arrived <- one
		}()
		waiting = append(waiting, <-t.arrived)
	}
	for len(waiting) > 0 {
		i := t.random.IntN(len(waiting))
		next := waiting[i]
		next.goOn <- struct{}{}
		if <-t.arrived; next.done {
			waiting = slices.Delete(waiting, i, i+1)
		}
	}
}

// turnHook is for the client of the gateway: each command waits for its turn. Now and then the reply to a script is lost, and
// the script is sent again when it is its turn again.
type turnHook struct{}

func (turnHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (turnHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		one, ok := ctx.Value(turnKey{}).(*turn)
		if !ok {
			return next(ctx, cmd)
		}
		one.wait()
		err := next(ctx, cmd)
		for cmd.Name() == "evalsha" && one.turns.random.IntN(4) == 0 {
			one.wait()
			err = next(ctx, cmd)
		}
		return err
	}
}

func (turnHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if one, ok := ctx.Value(turnKey{}).(*turn); ok {
			one.wait()
		}
		return next(ctx, cmds)
	}
}

// ownersOfAll is an accounts service of which each account owns the business of the same number.
type ownersOfAll struct{}

func (ownersOfAll) Account(_ context.Context, id string) (account.Account, error) {
	owner := oauthtest.Owner()
	owner.ID, owner.BusinessID = id, "biz"+strings.TrimPrefix(id, "acc")
	return owner, nil
}

// modelled is a connection beside what the rules say of it.
type modelled struct {
	possible []rules // by what was seen so far: what is told may not say in which order things were done

	id, request, verifier, code string
	refresh, access             []string // by generation
}

// trial is one run, which its seed repeats.
type trial struct {
	t       *testing.T
	seed    uint64
	random  *rand.Rand
	server  *oauth.Server
	client  *oauthtest.Client
	redis   redis.UniversalClient // without turns
	owner   account.Account
	all     []*modelled
	history []string
}

func (r *trial) failf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s\nafter\n%s\nrepeat it: GATEHOUSE_OAUTH_SEED=%d go test -run %s ./connect/oauth", fmt.Sprintf(format, args...), strings.Join(r.history, "\n"), r.seed, r.t.Name())
}

// do does something and returns what was told.
func (r *trial) do(ctx context.Context, a act) string {
	c := r.all[a.connection]
	client := *r.client
	client.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.client.Handler.ServeHTTP(w, request.WithContext(ctx))
	})
	decision := func(d oauth.Decision, err error) string {
		switch {
		case errors.Is(err, oauth.ErrNoRequest):
			return "over"
		case err != nil:
			return err.Error()
		case d.GrantID != "":
			c.id, c.code = d.GrantID, oauthtest.CodeOf(r.t, d.Redirect)
		}
		if d.Decided {
			return "decided"
		}
		return "decided before"
	}
	tokens := func(got oauthtest.Tokens, generation int) string {
		switch {
		case got.Status != http.StatusOK:
			if got.Error != "invalid_grant" {
				return got.Error
			}
			return "rejected"
		case generation == len(c.refresh):
			c.refresh, c.access = append(c.refresh, got.Refresh), append(c.access, got.Access)
		case c.refresh[generation] != got.Refresh || c.access[generation] != got.Access:
			return "other tokens than before"
		}
		return "tokens"
	}
	status := func(code int) string {
		if code != http.StatusOK {
			return http.StatusText(code)
		}
		return "done"
	}
	switch a.name {
	case "approve":
		return decision(r.server.Approve(ctx, c.request, r.owner, scopes(r.t, "mcp:read")))
	case "deny":
		return decision(r.server.Deny(ctx, c.request, r.owner))
	case "redeem":
		return tokens(client.Exchange(c.code, c.verifier, nil), 0)
	case "refresh":
		return tokens(client.Refresh(c.refresh[a.generation], nil), a.generation+1)
	case "disconnect":
		err := r.server.Revoke(ctx, c.id, r.owner)
		if errors.Is(err, oauth.ErrNoGrant) {
			return "over"
		}
		return toldError(err)
	case "give back":
		return status(client.Revoke(c.refresh[a.generation]))
	case "give access back":
		return status(client.Revoke(c.access[a.generation]))
	case "use":
		_, err := r.server.Authenticate(ctx, c.access[a.generation])
		if errors.Is(err, oauth.ErrInvalidToken) {
			return "rejected"
		}
		return toldError(err)
	case "let the grace pass":
		require.NoError(r.t, r.redis.HIncrBy(ctx, r.server.GrantKey(c.id), "rotated", -oauth.RefreshGrace.Milliseconds()-1).Err())
	case "let the code run out":
		require.NoError(r.t, r.redis.Del(ctx, r.server.GrantKey(c.id), r.server.RequestKey(c.id)).Err())
	}
	return ""
}

// choose chooses what to do to a connection with what is known of it.
func (r *trial) choose(connection int) act {
	c := r.all[connection]
	names := []string{"approve", "approve", "deny"}
	if c.code != "" {
		names = []string{"approve", "deny", "redeem", "redeem", "disconnect"}
	}
	a := act{connection: connection}
	if known := len(c.refresh); known > 0 {
		names = []string{
			"refresh", "refresh", "refresh", "refresh", "refresh", "refresh", "refresh", "refresh", "use", "use", "give access back",
			"give back", "disconnect", "redeem", "approve",
		}
		a.generation = known - 1 - min(r.random.IntN(known), r.random.IntN(known), r.random.IntN(known))
		if r.seed%4 == 0 && known > 1 && r.random.IntN(8) > 0 { // a client that loses one response after the other
			return act{connection: connection, name: "refresh", generation: known - 2}
		}
	}
	a.name = names[r.random.IntN(len(names))]
	return a
}

// round does up to three things at once. Some order of them has to explain what all were told.
func (r *trial) round() {
	connection := r.random.IntN(len(r.all))
	acts := make([]act, 1+r.random.IntN(3))
	for i := range acts {
		acts[i] = r.choose(connection)
	}
	c := r.all[connection]
	switch {
	case c.possible[0].state == "live" && c.possible[0].current > 0 && r.seed%4 > 0 && r.random.IntN(8) == 0:
		acts = []act{{connection: connection, name: "let the grace pass"}}
	case c.possible[0].state == "code" && r.random.IntN(8) == 0:
		acts = []act{{connection: connection, name: "let the code run out"}}
	}
	got := make([]string, len(acts))
	var all []func(context.Context)
	for i, a := range acts {
		all = append(all, func(ctx context.Context) { got[i] = r.do(ctx, a) })
	}
	(&turns{random: r.random, arrived: make(chan *turn)}).run(all)
	r.history = append(r.history, fmt.Sprintf("%v: %q", acts, got))
	var after []rules
	for _, before := range c.possible {
		after = explain(after, before, acts, got)
	}
	if len(after) == 0 {
		r.failf("no order of the last acts explains what was told, with %+v before", c.possible)
	}
	c.possible = after
}

// explain adds to all what the rules say after each order of acts in which they tell what was told.
func explain(all []rules, before rules, acts []act, got []string) []rules {
	if len(acts) == 0 {
		if !slices.Contains(all, before) {
			all = append(all, before)
		}
		return all
	}
	for i := range acts {
		now := before
		if now.apply(acts[i]) == got[i] {
			all = explain(all, now, slices.Delete(slices.Clone(acts), i, i+1), slices.Delete(slices.Clone(got), i, i+1))
		}
	}
	return all
}

// check compares everything that can be seen to the rules.
func (r *trial) check() {
	ctx := context.Background()
	grants, err := r.server.Grants(ctx, r.owner.BusinessID)
	require.NoError(r.t, err)
	for i, c := range r.all {
		listed := slices.ContainsFunc(grants, func(g oauth.Grant) bool { return g.ID == c.id })
		good := make([]bool, len(c.access))
		for generation, token := range c.access {
			_, err := r.server.Authenticate(ctx, token)
			good[generation] = err == nil
		}
		before := c.possible
		c.possible = slices.DeleteFunc(slices.Clone(before), func(after rules) bool {
			for generation := range good {
				if good[generation] != (after.apply(act{name: "use", generation: generation}) == "done") {
					return true
				}
			}
			return listed != (after.state == "live")
		})
		if len(c.possible) == 0 {
			r.failf("connection %d is listed: %v, its access tokens are good: %v, with %+v", i, listed, good, before)
		}
	}
}

// checkLog compares the audit log to the rules.
func (r *trial) checkLog() {
	list, _, err := r.server.Audit().List(context.Background(), r.owner.BusinessID, "", 100)
	require.NoError(r.t, err)
	var want, got []string
	add := func(happened bool, id, action, outcome string) {
		if happened {
			want = append(want, id+" "+action+" "+outcome)
		}
	}
	for _, c := range r.all {
		rules := c.possible[0]
		add(rules.decision == "approved", c.id, audit.ConnectionApproved, audit.OutcomeOK)
		add(rules.decision == "denied", "", audit.ConnectionDenied, audit.OutcomeDenied)
		add(rules.redeemed, c.id, audit.ConnectionStarted, audit.OutcomeOK)
		add(rules.recorded, c.id, audit.ConnectionRevoked, audit.OutcomeOK)
	}
	for _, e := range list {
		got = append(got, e.GrantID+" "+e.Action+" "+e.Outcome)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		r.failf("the audit log has\n%q\ninstead of\n%q", got, want)
	}
}

// Whatever is done to connections at the same time, in whatever order and however often Redis's replies are lost: what is
// told, listed and recorded is what some order of it all explains by the rules. GATEHOUSE_OAUTH_SEEDS is how many runs (150),
// and GATEHOUSE_OAUTH_SEED one of them.
func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.WithConfig("cluster-node-timeout", "15000"))
	plain, client, prefix := clientOf(t, cluster.Options()), clientOf(t, cluster.Options()), prefixOf(t)
	client.AddHook(turnHook{})
	server := newServer(t, func(o *oauth.Options) {
		o.Redis, o.Prefix, o.Accounts, o.Audit = client, prefix, ownersOfAll{}, newLog(t, plain, prefix)
		o.Limits.Authorizations, o.Limits.AllAuthorizations = limit(1<<20, time.Minute), limit(1<<20, time.Minute)
	})
	require.NoError(t, server.LoadScripts(t.Context()))
	registered := oauthtest.Register(t, server)
	first, seeds := rand.Uint64N(1<<32), uint64(150)
	if n, err := strconv.ParseUint(os.Getenv("GATEHOUSE_OAUTH_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("GATEHOUSE_OAUTH_SEED"), 10, 64); err == nil {
		first, seeds = n, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		r := &trial{
			t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), server: server, client: registered, redis: plain,
		}
		r.owner, _ = ownersOfAll{}.Account(t.Context(), fmt.Sprintf("acc-%d", seed))
		for range 2 {
			verifier, challenge := oauthtest.PKCE()
			r.all = append(r.all, &modelled{possible: make([]rules, 1), verifier: verifier, request: registered.Request(challenge, nil)})
		}
		for range 30 {
			r.round()
			r.check()
		}
		r.checkLog()
	}
}
