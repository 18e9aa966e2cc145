package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func ExampleLimiter() {
	server, err := embeddedredis.Start() // in production a real Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	limits, err := ratelimit.New(client, ratelimit.Options{Timeout: time.Minute})
	if err != nil {
		panic(err)
	}
	defer func() { _ = limits.Close() }()

	group, counters := ratelimit.ForIP(netip.MustParseAddr("2001:db8::1"), ratelimit.IPLimit(2))
	for range 3 {
		result, err := limits.Allow(context.Background(), group, counters...)
		if err != nil {
			panic(err)
		}
		header := http.Header{}
		result.SetHeaders(header, time.Now())
		fmt.Println(result.Allowed, header.Get("RateLimit-Policy"), header.Get("X-RateLimit-Remaining"))
	}
	// Output:
	// true "ip";q=2;w=60 1
	// true "ip";q=2;w=60 0
	// false "ip";q=2;w=60 0
}
