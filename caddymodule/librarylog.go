package caddymodule

import (
	"context"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
)

// RedirectLibraryLogs makes go-redis and OpenTelemetry write to Caddy's default log. Their own loggers write plain text to standard
// error, between the lines of JSON. Both loggers are global, so a program calls it in its main function; Main does.
func RedirectLibraryLogs() {
	redis.SetLogger(redisLogger{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logTracing(err.Error()) })) // failed exports, among others
	otel.SetLogger(funcr.New(func(_, args string) { logTracing(args) }, funcr.Options{}))
}

type redisLogger struct{}

// Printf implements the interface of redis.SetLogger.
func (redisLogger) Printf(_ context.Context, format string, v ...any) {
	caddy.Log().Named("redis").Warn(strings.TrimPrefix(fmt.Sprintf(format, v...), "redis: "))
}

func logTracing(message string) { caddy.Log().Named("tracing").Warn(message) }
