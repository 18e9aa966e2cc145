package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// atATime is how many tests run at a time unless -parallel says otherwise. They mostly wait for processes of their own, so
// that more than one to a processor keeps the machine busy: on two, the package takes half the time.
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
