package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// atATime is the number of parallel tests without -parallel. Tests mostly wait for their processes, so more tests than processors
// make the package faster.
const atATime = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atATime); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
