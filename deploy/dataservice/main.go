// Command dataservice runs the demo data service, in place of a platform team's service behind the gateway. It does not
// authenticate the gateway, so let only the gateway reach it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
)

func main() {
	listen := flag.String("listen", "localhost:8081", "address to serve on")
	database := flag.String("database", demo.Memory, "SQLite file, created with demo data if it does not exist (default: in memory)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	err := run(ctx, *listen, *database, logger)
	stop()
	if err != nil {
		logger.Error("the data service failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, database string, logger *slog.Logger) (err error) {
	service, err := demo.Open(ctx, database, demo.Options{Logger: logger})
	if err != nil {
		return fmt.Errorf("opening the demo data: %w", err)
	}
	defer func() { err = errors.Join(err, service.Close()) }()

	// The arguments of `gatehouse keys issue`.
	for _, b := range demo.Businesses() {
		logger.Info("business", "id", b.ID, "name", b.Name, "slug", b.Slug, "account_status", b.AccountStatus)
	}

	// Invented accounts to sign in with, whose passwords are public anyway.
	for _, a := range demo.Accounts() {
		logger.Info("account", "email", a.Email, "demo_password", a.Password, "role", a.Role, "business", a.BusinessID)
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{
		Handler:           service.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	logger.Info("serving", "address", listener.Addr().String())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	// Finish the requests in progress.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}
