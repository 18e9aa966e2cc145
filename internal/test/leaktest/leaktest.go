// Package leaktest finds goroutines that a package's tests have leaked.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a goroutine may take to end.
const patience = time.Minute

// Main is a TestMain that runs the tests and Check.
func Main(m *testing.M) { os.Exit(Check(m.Run())) }

// Check returns the exit code of tests that ended with code: 1 if they passed and goroutines are left, which it lists.
func Check(code int) int {
	if code != 0 {
		return code
	}
	if err := find(patience); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// find repeats goleak.Find, which waits for less than half a second: on a busy machine a closed connection, or a client that
// reconnects to Redis once a second, ends later.
func find(patience time.Duration) error {
	began := time.Now()
	for {
		if err := goleak.Find(); err == nil || time.Since(began) > patience {
			return err
		}
	}
}
