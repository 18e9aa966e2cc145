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

// rules is the state of a connection by OAuth 2.1 and docs/connect.md.
type rules struct {
	decision string // "", "approved" or "denied"
	state    string // "", "code", "active" or "ended"
	redeemed bool
	recorded bool   // whether its end is audited, which the expiry of a code is not
	current  int    // generation of the refresh token; the code's is 0
	late     bool   // the grace of the previous refresh token has ended
	repeats  int    // of the previous refresh token
	revoked  uint64 // a bit for each generation's access token
	writes   bool   // whether the owner has allowed to change contacts
	changes  int    // of what it may do
}

// act is an operation on a connection with the tokens of a generation.
type act struct {
	connection int
	name       string
	generation int
}

func (a act) String() string { return fmt.Sprintf("%d %s %d", a.connection, a.name, a.generation) }

// may returns what the connection may do.
func (r *rules) may() string {
	if r.writes {
		return "contacts:write mcp:read"
	}
	return "mcp:read"
}

func (r *rules) end() {
	r.state, r.recorded = "ended", true
}

// apply applies an operation and returns its result.
func (r *rules) apply(a act) string {
	switch a.name {
	case "approve":
		switch {
		case r.decision == "":
			r.decision, r.state = "approved", "code"
			return "decided"
		case r.decision == "approved" && r.state == "code":
			return "decided"
		}
		return "over"
	case "deny":
		if r.decision == "approved" && r.state != "code" {
			return "over"
		}
		r.decision, r.state = "denied", ""
		return "decided"
	case "redeem":
		switch r.state {
		case "code":
			r.state, r.redeemed = "active", true
			return "tokens for " + r.may()
		case "active":
			r.end() // a replay
		}
		return "rejected"
	case "refresh":
		switch {
		case r.state != "active":
			return "rejected"
		case a.generation == r.current:
			r.current, r.late, r.repeats = r.current+1, false, 0
			return "tokens for " + r.may()
		case a.generation == r.current-1 && !r.late && r.repeats < oauth.MaxRepeats:
			r.repeats++
			return "tokens for " + r.may()
		case a.generation < r.current-1 || r.late:
			r.end() // a reuse
			return "rejected"
		}
		return "too_many_requests"
	case "disconnect":
		if r.state != "active" && r.state != "code" {
			return "over"
		}
		r.end()
		return "done"
	case "revoke":
		if r.state == "active" {
			r.end()
		}
		return "done"
	case "revoke access":
		if r.state == "active" {
			r.revoked |= 1 << a.generation
		}
		return "done"
	case "use":
		if r.state == "active" && r.revoked&(1<<a.generation) == 0 {
			return r.may()
		}
		return "rejected"
	case "extend", "narrow":
		if r.state != "active" {
			return "over"
		}
		if writes := a.name == "extend"; r.writes != writes {
			r.writes, r.changes = writes, r.changes+1
		}
		return "done"
	case "end the grace":
		r.late = true
	case "expire the code":
		r.state = "ended"
	}
	return ""
}

// turns runs one of several goroutines at a time, until its next Redis command.
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

// run runs functions concurrently, in an order that depends on the seed.
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

// turnHook makes each command of the gateway wait for its turn. Sometimes the reply to a script is lost, and the script is sent
// again at its next turn.
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

// ownersOfAll is an accounts service in which each account owns the business of the same number.
type ownersOfAll struct{}

func (ownersOfAll) Account(_ context.Context, id string) (account.Account, error) {
	owner := oauthtest.Owner()
	owner.ID, owner.BusinessID = id, "biz"+strings.TrimPrefix(id, "acc")
	return owner, nil
}

// modelled is a connection and its possible states by the rules.
type modelled struct {
	possible []rules // several, if the results do not determine the order of operations

	id, request, verifier, code string
	refresh, access             []string // by generation
}

// trial is a run, which is reproducible by its seed.
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

// do executes an operation and returns its result.
func (r *trial) do(ctx context.Context, a act) string {
	c := r.all[a.connection]
	client := *r.client
	client.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.client.Handler.ServeHTTP(w, request.WithContext(ctx))
	})
	decision := func(redirect string, err error) string {
		switch {
		case errors.Is(err, oauth.ErrNoRequest):
			return "over"
		case err != nil:
			return err.Error()
		case a.name == "approve":
			c.code = oauthtest.CodeOf(r.t, redirect)
			c.id, _, _ = strings.Cut(strings.TrimPrefix(c.code, "gac_"), ".")
		}
		return "decided"
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
		return "tokens for " + got.Scope
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
		return errorResult(err)
	case "revoke":
		return status(client.Revoke(c.refresh[a.generation]))
	case "revoke access":
		return status(client.Revoke(c.access[a.generation]))
	case "use":
		grant, err := r.server.Authenticate(ctx, c.access[a.generation])
		switch {
		case errors.Is(err, oauth.ErrInvalidToken):
			return "rejected"
		case err != nil:
			return errorResult(err)
		}
		return grant.Scopes.String()
	case "extend", "narrow":
		granted := scopes(r.t, (&rules{writes: a.name == "extend"}).may())
		for {
			version := r.redis.HGet(ctx, r.server.GrantKey(c.id), "version").Val()
			switch err := r.server.Change(ctx, c.id, version, r.owner, granted, false); {
			case errors.Is(err, oauth.ErrNoGrant):
				return "over"
			case !errors.Is(err, oauth.ErrChanged):
				return errorResult(err)
			}
		}
	case "end the grace":
		require.NoError(r.t, r.redis.HIncrBy(ctx, r.server.GrantKey(c.id), "rotated", -oauth.RefreshGrace.Milliseconds()-1).Err())
	case "expire the code":
		require.NoError(r.t, r.redis.Del(ctx, r.server.GrantKey(c.id), r.server.RequestKey(c.id)).Err())
	}
	return ""
}

// choose returns an operation with the known tokens of a connection.
func (r *trial) choose(connection int) act {
	c := r.all[connection]
	names := []string{"approve", "approve", "deny"}
	if c.code != "" {
		names = []string{"approve", "deny", "redeem", "redeem", "disconnect"}
	}
	a := act{connection: connection}
	if known := len(c.refresh); known > 0 {
		names = []string{
			"refresh", "refresh", "refresh", "refresh", "refresh", "refresh", "refresh", "refresh", "use", "use", "revoke access",
			"extend", "extend", "narrow", "narrow", "revoke", "disconnect", "redeem", "approve",
		}
		a.generation = known - 1 - min(r.random.IntN(known), r.random.IntN(known), r.random.IntN(known))
		if r.seed%4 == 0 && known > 1 && r.random.IntN(8) > 0 { // a client that loses each response
			return act{connection: connection, name: "refresh", generation: known - 2}
		}
	}
	a.name = names[r.random.IntN(len(names))]
	return a
}

// round executes up to three operations concurrently. Some order of them must explain their results.
func (r *trial) round() {
	connection := r.random.IntN(len(r.all))
	acts := make([]act, 1+r.random.IntN(3))
	for i := range acts {
		acts[i] = r.choose(connection)
	}
	c := r.all[connection]
	switch {
	case c.possible[0].state == "active" && c.possible[0].current > 0 && r.seed%4 > 0 && r.random.IntN(8) == 0:
		acts = []act{{connection: connection, name: "end the grace"}}
	case c.possible[0].state == "code" && r.random.IntN(8) == 0:
		acts = []act{{connection: connection, name: "expire the code"}}
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
		r.failf("no order of the last operations explains their results, with %+v before", c.possible)
	}
	c.possible = after
}

// explain appends the states after each order of acts that has the results got.
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

// check compares the access tokens and the list with the rules.
func (r *trial) check() {
	ctx := context.Background()
	grants, err := r.server.Grants(ctx, r.owner.BusinessID)
	require.NoError(r.t, err)
	for i, c := range r.all {
		listed := slices.ContainsFunc(grants, func(g oauth.Grant) bool { return g.ID == c.id })
		valid := make([]string, len(c.access))
		for generation, token := range c.access {
			valid[generation] = "rejected"
			if grant, err := r.server.Authenticate(ctx, token); err == nil {
				valid[generation] = grant.Scopes.String()
			}
		}
		before := c.possible
		c.possible = slices.DeleteFunc(slices.Clone(before), func(after rules) bool {
			for generation := range valid {
				if valid[generation] != after.apply(act{name: "use", generation: generation}) {
					return true
				}
			}
			return listed != (after.state == "active")
		})
		if len(c.possible) == 0 {
			r.failf("connection %d is listed: %v, its access tokens are for %q, with %+v", i, listed, valid, before)
		}
	}
}

// checkLog compares the audit log with the rules.
func (r *trial) checkLog() {
	list, _, err := r.server.Audit().List(context.Background(), r.owner.BusinessID, "", 100)
	require.NoError(r.t, err)
	var want, got []string
	add := func(happened bool, id, action, outcome string) {
		if happened {
			want = append(want, id+" "+action+" "+outcome)
		}
	}
	changes := map[string]int{}
	for _, e := range list {
		if e.Action == audit.ConnectionChanged {
			changes[e.GrantID]++
		}
	}
	for _, c := range r.all {
		rules := c.possible[0]
		for _, other := range c.possible { // nothing else may tell whether a change before the end changed anything
			if other.changes == changes[c.id] {
				rules = other
			}
		}
		add(c.id != "", c.id, audit.ConnectionApproved, audit.OutcomeOK)
		add(rules.decision == "denied", "", audit.ConnectionDenied, audit.OutcomeDenied)
		add(rules.redeemed, c.id, audit.ConnectionStarted, audit.OutcomeOK)
		for range rules.changes {
			add(true, c.id, audit.ConnectionChanged, audit.OutcomeOK)
		}
		add(rules.recorded, c.id, audit.ConnectionRevoked, audit.OutcomeOK)
	}
	for _, e := range list {
		got = append(got, e.GrantID+" "+e.Action+" "+e.Outcome)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		r.failf("the audit log contains\n%q\ninstead of\n%q", got, want)
	}
}

// The results, the list and the audit log of random concurrent operations with lost replies of Redis must agree with the rules
// for some order of the operations. GATEHOUSE_OAUTH_SEEDS is the number of runs (150), and GATEHOUSE_OAUTH_SEED selects one.
func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	plain, client, prefix := clientOf(t, cluster.Options()), clientOf(t, cluster.Options()), prefixOf(t)
	client.AddHook(turnHook{})
	server := newServer(t, func(o *oauth.Options) {
		o.Redis, o.Prefix, o.Accounts, o.Audit = client, prefix, ownersOfAll{}, newLog(t, plain, prefix)
		o.Limits().Authorizations, o.Limits().AllAuthorizations = limit(1<<20, time.Minute), limit(1<<20, time.Minute)
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
