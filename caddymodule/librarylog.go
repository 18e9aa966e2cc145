package caddymodule

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
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

// withoutQuotes is an output of the standard logger that drops what libraries quote: net/http prints, among others, what a server
// sends on an idle connection, which may be part of a response to somebody else's request.
type withoutQuotes struct{ output io.Writer }

// Write implements io.Writer. It drops the rest of a line from the first quotation mark on, so that nothing quoted can end a quotation.
func (w withoutQuotes) Write(line []byte) (int, error) {
	if before, _, quoted := bytes.Cut(line, []byte{'"'}); quoted {
		line = append(bytes.Clone(before), "…"...)
	}
	return w.output.Write(line)
}

// quietError is an error of a handler that is not ours. net/http and FastCGI quote what a service sent, which may be a record, so its text
// ends at the first quotation mark, like a line of the standard logger.
type quietError struct{ error }

func (e quietError) Error() string {
	before, _, quoted := strings.Cut(e.error.Error(), `"`)
	if quoted {
		before += "…"
	}
	return before
}

func (e quietError) Unwrap() error { return e.error }

// dropQuotes makes the standard logger drop what libraries quote. Caddy sets the logger's output at the beginning of each load, and leaves it
// like that if the load fails before it reaches an App of ours. So each App calls it, and each request.
func dropQuotes() {
	output := log.Writer()
	if _, ok := output.(withoutQuotes); !ok {
		log.SetOutput(withoutQuotes{output})
	}
}
